"""Declares the command line: what can be asked for, and which part answers. Parts are imported when asked.

Exit codes: 0 all well, 1 something failed (said at the end), 2 wrong usage.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from pydantic import ValidationError
from typer._completion_classes import completion_init
from typer.core import TyperCommand, TyperGroup

from app import __version__
from app.cli.bulk import bulk
from app.cli.captioners import captioners
from app.cli.service.dead import dead
from app.cli.extract import extract
from app.cli.service.jobs import jobs
from app.cli.judge import judge
from app.cli.service.keys import keys
from app.cli.search import search
from app.errors import UsageError
from app.jobs.options import CaptionOptions
from app.settings import Settings, load_settings
from app.terminal import complain
from extractors.errors import ReelwordError

PROGRAM = "python -m app"

Streams = Annotated[
    str | None,
    typer.Option(help="Stream set, see models --sets; default: the one each captioner was trained on."),
]
WeightsNames = Annotated[
    list[str], typer.Argument(metavar="NAME", help="As weights list has it.", show_default=False)
]
#: What bash runs to complete a line: typer answers it, asked for by the variable. Its own script completes
#: the name of a command, and this program is python with two words behind it.
COMPLETE_VARIABLE = "_REELWORD_COMPLETE"
BASH_SCRIPT = f"""_reelword_completion() {{
    local IFS=$'\\n'
    if [[ $COMP_CWORD -gt 2 && ${{COMP_WORDS[1]}} == -m && ${{COMP_WORDS[2]}} == app ]]; then
        COMPREPLY=( $( COMP_WORDS="app ${{COMP_WORDS[*]:3}}" COMP_CWORD=$((COMP_CWORD - 2)) \\
            {COMPLETE_VARIABLE}=complete_bash "$1" -m app 2>/dev/null ) )
    fi
}}
complete -o bashdefault -o default -F _reelword_completion python python3"""
PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


class Commands(TyperGroup):
    """Ends a command that meets an error of ours with the sentence that the error is."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except UsageError as error:
            complain(str(error))
            raise typer.Exit(2) from error
        except ReelwordError as error:
            complain(error.advice)
            raise typer.Exit(1) from error


class PlainCommand(TyperCommand):
    """Prints its help without boxes, which cut the names of long options on a narrow terminal."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **{**named, "rich_markup_mode": None})


cli = typer.Typer(
    cls=Commands,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="A video goes in, a caption with its attention comes out.",
)
weights = typer.Typer(no_args_is_help=True, help="List, get, add and verify the networks' published weights.")
cli.add_typer(weights, name="weights")
cli.add_typer(jobs, name="jobs")
cli.add_typer(dead, name="dead")
cli.add_typer(captioners, name="captioners")
cli.add_typer(keys, name="keys")
cli.command(cls=PlainCommand)(bulk)
cli.command(cls=PlainCommand)(extract)
cli.command(cls=PlainCommand)(judge)
cli.command(cls=PlainCommand)(search)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"reelword {__version__}")
        raise typer.Exit


@cli.callback()
def take_common_options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and end."),
    ] = False,
) -> None:
    """Take the options that stand before a command."""


def main() -> None:
    """Runs the command that was given, or completes the line that a shell asks about."""
    completion_init()
    cli(prog_name=PROGRAM, complete_var=COMPLETE_VARIABLE)


def _option(name: str) -> str:
    """Finds what CaptionOptions says of an option; the first sentence is enough here."""
    return (CaptionOptions.model_fields[name].description or "").rstrip(".")


@cli.command()
def caption(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="VIDEO…", help="Video files, and folders of them.", show_default=False),
    ],
    captioner: Annotated[
        str | None, typer.Option(help="Which captioner writes; models lists them and marks the default.")
    ] = None,
    members: Annotated[
        str | None, typer.Option(help="Of fusion or ensemble: captioners, with commas between them.")
    ] = None,
    beam_size: Annotated[int, typer.Option(help=_option("beam_size"))] = 5,
    num_captions: Annotated[int, typer.Option(help=_option("num_captions"))] = 1,
    max_length: Annotated[int, typer.Option(help=_option("max_length"))] = 20,
    length_penalty: Annotated[float, typer.Option(help=_option("length_penalty"))] = 0.7,
    method: Annotated[Literal["beam", "greedy", "sample"], typer.Option(help=_option("method"))] = "beam",
    temperature: Annotated[float, typer.Option(help=_option("temperature"))] = 1.0,
    top_k: Annotated[int | None, typer.Option(help=_option("top_k"))] = None,
    top_p: Annotated[float | None, typer.Option(help=_option("top_p"))] = None,
    seed: Annotated[int | None, typer.Option(help=_option("seed"))] = None,
    suppress_unk: Annotated[bool, typer.Option(help=_option("suppress_unk"))] = True,
    block_trigrams: Annotated[bool, typer.Option(help=_option("block_trigrams"))] = False,
    decoding_constraint: Annotated[bool, typer.Option(help=_option("decoding_constraint"))] = False,
    name_once: Annotated[bool, typer.Option(help=_option("name_once"))] = True,
    remove_bad_endings: Annotated[bool, typer.Option(help=_option("remove_bad_endings"))] = False,
    group_size: Annotated[int, typer.Option(help=_option("group_size"))] = 1,
    diversity_lambda: Annotated[float, typer.Option(help=_option("diversity_lambda"))] = 0.5,
    fusion_rule: Annotated[
        Literal["merit", "relevance"], typer.Option(help=_option("fusion_rule"))
    ] = "merit",
    category: Annotated[int | None, typer.Option(help=_option("category"))] = None,
    prompt: Annotated[str | None, typer.Option(help=_option("prompt"))] = None,
    as_json: Annotated[bool, typer.Option("--json", help="A line of JSON for each file.")] = False,
    attention: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write <name>.png and <name>.json there, for each file."),
    ] = None,
    streams: Streams = None,
    segments: Annotated[
        str | None,
        typer.Option(
            help="Caption segments: shots, none, or seconds; default: shots of films over a minute."
        ),
    ] = None,
    shortest: Annotated[float, typer.Option(help="Seconds of a segment, at least.")] = 2.0,
    longest: Annotated[float, typer.Option(help="Seconds after which a shot is cut.")] = 20.0,
    file_format: Annotated[
        str | None, typer.Option("--format", help="Write segments as vtt, srt, csv or json.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder for these files; default: standard output.")
    ] = None,
) -> None:
    """Caption video files and folders of them, without a server."""
    options = _options(
        captioner=captioner,
        members=members,
        beam_size=beam_size,
        num_captions=num_captions,
        max_length=max_length,
        length_penalty=length_penalty,
        method=method,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
        suppress_unk=suppress_unk,
        block_trigrams=block_trigrams,
        decoding_constraint=decoding_constraint,
        name_once=name_once,
        remove_bad_endings=remove_bad_endings,
        group_size=group_size,
        diversity_lambda=diversity_lambda,
        fusion_rule=fusion_rule,
        category=category,
        prompt=prompt,
        attention=attention is not None,
    )
    from app.cli.local_captions import caption_files
    from app.cli.segments import SegmentOutput, caption_by_segments
    from app.segments.loading import segment_options

    cut = segment_options(segments or "auto", shortest, longest)
    output = SegmentOutput(file_format, out, as_json)
    if segments in (None, "none") and file_format is None:
        follow = cut if segments is None and not as_json and attention is None else None
        failed = caption_files(
            files, options, _settings(streams), as_json=as_json, folder=attention, segments=follow
        )
    elif attention is not None:
        raise UsageError("--attention draws whole videos: leave out --segments and --format.")
    else:
        failed = caption_by_segments(files, options, cut, output, _settings(streams))
    raise typer.Exit(1 if failed else 0)


@cli.command()
def serve(streams: Streams = None) -> None:
    """Start everything: Redis (embedded unless REDIS_URL is set), a worker and the API."""
    from app.serve.supervisor import serve as run

    run(_settings(streams))


@cli.command()
def worker(streams: Streams = None) -> None:
    """Run one worker on the Redis at REDIS_URL, or on the one that runs in the data folder."""
    from app.worker.worker import work

    configured = _settings(streams)
    _start_log(configured, "worker")
    work(configured)


@cli.command()
def api(
    host: Annotated[str | None, typer.Option(help="Address to listen on; default REELWORD_HOST.")] = None,
    port: Annotated[
        int | None, typer.Option(help="Port to listen on; default REELWORD_PORT or PORT.")
    ] = None,
) -> None:
    """Run the API alone, on the Redis at REDIS_URL, or on the one that runs in the data folder."""
    from app.api.application import run
    from app.serve.supervisor import free_port

    configured = load_settings()
    given = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    configured = configured.model_copy(update=given)
    configured = configured.model_copy(update={"port": free_port(configured.host, configured.port)})
    _start_log(configured, "api")
    run(configured)


@cli.command()
def models(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    sets: Annotated[bool, typer.Option("--sets", help="The stream sets alone.")] = False,
) -> None:
    """List captioners with features, sizes and scores, and the stream sets with what they lack here."""
    from app.cli.models import print_models, print_sets

    configured = load_settings()
    if not sets:
        print_models(configured, as_json=as_json)
    if sets or not as_json:
        print_sets(configured.data, as_json=as_json)


@weights.command("list")
def list_weights(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """List the weights of weights/manifest.toml: their source, licence, and whether they are here."""
    from app.cli.weights import print_weights

    print_weights(load_settings(), as_json=as_json)


@weights.command("get")
def fetch(names: WeightsNames) -> None:
    """Download weights into the data folder; what broke off goes on where it stopped."""
    from app.cli.weights import get_weights

    raise typer.Exit(get_weights(names, load_settings()))


@weights.command()
def add(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file you have.", show_default=False)],
    name: Annotated[str, typer.Option("--as", metavar="NAME", help="Whose weights it is.")],
) -> None:
    """Copy a file of weights into the data folder, once the network can be built from it."""
    from app.cli.weights import add_weights

    raise typer.Exit(add_weights(file, name, load_settings()))


@weights.command()
def verify(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]", show_default=False)] = None,
) -> None:
    """Check every byte of the weights that are here, or of those that are named."""
    from app.cli.weights import verify_weights

    raise typer.Exit(verify_weights(names or [], load_settings()))


@cli.command()
def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Print every setting, versions, engines and weights, and say what is wrong."""
    from app.cli.service.doctor import examine

    raise typer.Exit(1 if examine(load_settings(), as_json=as_json) else 0)


@cli.command()
def completion() -> None:
    """Print what makes bash complete commands and options: eval "$(python -m app completion)"."""
    typer.echo(BASH_SCRIPT)


@cli.command(context_settings=PASS_ON)
def train(context: typer.Context) -> None:
    """Train a captioner; --help lists what it takes."""
    _hand_to_training("train", context)


@cli.command(context_settings=PASS_ON)
def evaluate(context: typer.Context) -> None:
    """Score a captioner: BLEU, METEOR, ROUGE-L and CIDEr-D; --help lists what it takes."""
    _hand_to_training("evaluate", context)


@cli.command(context_settings=PASS_ON)
def ablate(context: typer.Context) -> None:
    """Train and read the papers' ablations, one row after another; --help lists what it takes."""
    from training.ablations.command import app as ablations

    ablations(context.args, prog_name=f"{PROGRAM} ablate")


@cli.command(context_settings=PASS_ON)
def plot(context: typer.Context) -> None:
    """Draw the curves of training runs; --help lists what it takes."""
    _hand_to_training("plot", context)


@cli.command(context_settings=PASS_ON)
def data(context: typer.Context) -> None:
    """Say what of a captioned set is there and what is missing: data check SET --root DIR."""
    from app.cli.training.data import app as data

    data(context.args, prog_name=f"{PROGRAM} data")


def _settings(streams: str | None) -> Settings:
    """Reads the settings, with the stream set that the command line names."""
    configured = load_settings()
    return configured if streams is None else configured.model_copy(update={"streams": streams})


def _options(**given: object) -> CaptionOptions:
    try:
        return CaptionOptions.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        named = f"--{str(first['loc'][0]).replace('_', '-')}: " if first["loc"] else ""
        raise UsageError(f"{named}{first['msg'].removeprefix('Value error, ')}.") from error


def _start_log(configured: Settings, process: str) -> None:
    from app import logs

    logs.configure_logs(configured, process=process)


def _hand_to_training(command: str, context: typer.Context) -> None:
    """Hands the rest of the line to training's own command line, where its options are kept."""
    from training.cli import app as training

    training([command, *context.args], prog_name=PROGRAM)
