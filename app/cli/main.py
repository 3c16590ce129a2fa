"""The command line: what can be asked for, and which part answers. Parts are imported when they are asked.

Exit codes: 0 all well, 1 something failed (said at the end), 2 wrong usage.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from app import __version__
from app.cli.captioners import captioners
from app.cli.dead import dead
from app.cli.extract import extract
from app.cli.judge import judge
from app.cli.settings import exit_for_usage, load_settings
from app.cli.weights import weights
from app.errors import JobError, UsageError
from app.jobs.options import CaptionOptions
from app.settings import Settings
from app.terminal import complain

PROGRAM = "python -m app"
Streams = Annotated[
    str | None,
    typer.Option(help="Stream set, see models --sets; default: the one each captioner was trained on."),
]
PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}

cli = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="A video goes in, a caption with its attention comes out.",
)
cli.add_typer(weights, name="weights")
cli.add_typer(dead, name="dead")
cli.add_typer(captioners, name="captioners")
cli.command()(extract)
cli.command()(judge)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"reelword {__version__}")
        raise typer.Exit


@cli.callback()
def options_of_all(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and end."),
    ] = False,
) -> None:
    """Take the options that stand before a command."""


def main() -> None:
    """Runs a command; errors that are told in a sentence end it with that sentence."""
    try:
        cli(prog_name=PROGRAM)
    except JobError as error:
        complain(f"{error} {error.hint}")
        raise SystemExit(1) from error


def _option(name: str) -> str:
    """What CaptionOptions says of an option; the first sentence is enough here."""
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
    as_json: Annotated[bool, typer.Option("--json", help="A line of JSON for each file.")] = False,
    attention: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write <name>.png and <name>.json there, for each file."),
    ] = None,
    streams: Streams = None,
) -> None:
    """Caption video files and folders of them, without a server."""
    options = _options(
        captioner=captioner,
        members=members,
        beam_size=beam_size,
        num_captions=num_captions,
        max_length=max_length,
        length_penalty=length_penalty,
        attention=attention is not None,
    )
    from app.cli.caption import caption_files

    try:
        failed = caption_files(files, options, _fed(streams), as_json=as_json, folder=attention)
    except UsageError as error:
        exit_for_usage(str(error))
    raise typer.Exit(1 if failed else 0)


@cli.command()
def serve(streams: Streams = None) -> None:
    """Start everything: Redis (embedded unless REDIS_URL is set), a worker and the API."""
    from app.serve.supervisor import serve as run

    run(_fed(streams))


@cli.command()
def worker(streams: Streams = None) -> None:
    """Run one worker on the Redis at REDIS_URL, or on the one that runs in the data folder."""
    from app.worker.worker import work

    configured = _fed(streams)
    _log(configured, "worker")
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
    _log(configured, "api")
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
        print_models(configured.weights, as_json=as_json, default=configured.captioner)
    if sets or not as_json:
        print_sets(configured.data, as_json=as_json)


@cli.command()
def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Print every setting, versions, engines and weights, and say what is wrong."""
    from app.cli.doctor import examine

    raise typer.Exit(1 if examine(load_settings(), as_json=as_json) else 0)


@cli.command(context_settings=PASS_ON)
def train(context: typer.Context) -> None:
    """Train a captioner; --help lists what it takes."""
    _training("train", context)


@cli.command(context_settings=PASS_ON)
def evaluate(context: typer.Context) -> None:
    """Score a captioner: BLEU, METEOR, ROUGE-L and CIDEr-D; --help lists what it takes."""
    _training("evaluate", context)


@cli.command(context_settings=PASS_ON)
def ablate(context: typer.Context) -> None:
    """Train and read the papers' ablations, one row after another; --help lists what it takes."""
    from training.ablations.command import app as ablations

    ablations(context.args, prog_name=f"{PROGRAM} ablate")


@cli.command(context_settings=PASS_ON)
def plot(context: typer.Context) -> None:
    """Draw the curves of training runs; --help lists what it takes."""
    _training("plot", context)


@cli.command(context_settings=PASS_ON)
def data(context: typer.Context) -> None:
    """Say what of a captioned set is there and what is missing: data check SET --root DIR."""
    from training.data_cli import app as data

    data(context.args, prog_name=f"{PROGRAM} data")


def _fed(streams: str | None) -> Settings:
    """The settings, with the stream set that the command line names."""
    configured = load_settings()
    return configured if streams is None else configured.model_copy(update={"streams": streams})


def _options(**given: object) -> CaptionOptions:
    try:
        return CaptionOptions.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        named = f"--{str(first['loc'][0]).replace('_', '-')}: " if first["loc"] else ""
        exit_for_usage(f"{named}{first['msg'].removeprefix('Value error, ')}.")


def _log(configured: Settings, process: str) -> None:
    from app import logs

    logs.configure(configured, process=process)


def _training(command: str, context: typer.Context) -> None:
    """Hands the rest of the line to training's own command line, where its options are kept."""
    from training.cli import app as training

    training([command, *context.args], prog_name=PROGRAM)
