"""Lists the commands. Each is in a module of its own, which is imported when the command is called.

Exit codes: 0 all well, 1 something failed (said at the end), 2 wrong usage.
"""

from typing import Annotated

import typer

from app import __version__
from app.cli.commands import make_program
from app.terminal import PROGRAM

#: Command → its module below app.cli, in which a function or a group has the command's name; and its help.
COMMANDS = {
    "caption": ("videos.caption", "Caption video files and folders of them."),
    "search": ("videos.search", "Find moments that fit some words, in films or in the service's jobs."),
    "extract": ("videos.extract", "Write features of videos to files, one decoding for all extractors."),
    "bulk": ("videos.bulk", "Caption a collection into parquet, on this machine or a Ray cluster."),
    "serve": ("service.run", "Start everything: Redis (embedded unless REDIS_URL is set), workers, API."),
    "worker": ("service.run", "Run one worker on the Redis at REDIS_URL, or on that of the data folder."),
    "api": ("service.run", "Run the API alone, on the Redis at REDIS_URL, or on that of the data folder."),
    "jobs": ("service.jobs", "List, show, requeue, cancel and purge jobs."),
    "dead": ("service.dead", "List, show, requeue and drop jobs that could not be read."),
    "keys": ("service.keys", "Make, list and revoke API keys."),
    "doctor": ("service.doctor", "Print every setting, versions, engines and weights, and what is wrong."),
    "models": ("models", "List captioners with sizes and scores, and stream sets with what they lack."),
    "captioners": ("captioners", "Add, list, remove and verify open pretrained captioners."),
    "weights": ("weights", "List, get, add and verify the networks' published weights."),
    "train": ("training.train", "Train a captioner; best.safetensors, run.json and log.csv lie in --out."),
    "evaluate": ("training.evaluate", "Score a captioner: BLEU, METEOR, ROUGE-L and CIDEr-D with intervals."),
    "score": ("training.score", "Score files of captions against references, without a captioner."),
    "plot": ("training.plot", "Draw loss and held-out CIDEr-D of training runs by step, in one picture."),
    "data": ("training.data", "Say what of a captioned set is there, and what is missing."),
}  # fmt: skip


cli = make_program(
    "app.cli", COMMANDS, "A video goes in, a caption with its attention comes out.", add_completion=True
)


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
    cli(prog_name=PROGRAM)
