"""Lists, shows, requeues and drops what could not be read: ``reelword dead``.

app/jobs/dead_letters.py keeps it.
"""

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.model_options import AsJson, settings_with
from app.errors import RecordUnreadable
from app.terminal import complain

if TYPE_CHECKING:
    from app.cli.service.job_records import JobRecords
    from app.jobs.dead_letters import DeadLetter
    from app.jobs.job_store import Jobs

Names = Annotated[list[str], typer.Argument(metavar="NAME", help="As dead list has it.", show_default=False)]

dead = typer.Typer(no_args_is_help=True)


def _open() -> "JobRecords":
    from app.cli.service.job_records import JobRecords

    return JobRecords.connect(settings_with())


@dead.command("list")
def list_letters(as_json: AsJson = False) -> None:
    """List the dead letters, oldest first: when, what, and why it could not be read."""
    letters = _open().jobs.dead.all()
    if as_json:
        typer.echo(json.dumps([letter.model_dump() for letter in letters]))
        return
    for letter in letters:
        when = datetime.fromtimestamp(letter.at, UTC).isoformat(timespec="seconds")
        typer.echo(f"{letter.name}  {letter.kind}  {when}  {letter.reason}")
    if not letters:
        typer.echo("There are no dead letters.")


@dead.command()
def show(name: Annotated[str, typer.Argument(help="As dead list has it.")], as_json: AsJson = False) -> None:
    """Show a dead letter with the values that could not be read."""
    jobs = _open().jobs
    letter = _find(jobs, name)
    document = {**letter.model_dump(), "value": jobs.dead.value(letter)}
    if as_json:
        typer.echo(json.dumps(document))
        return
    for member, value in document.items():
        typer.echo(f"{member}: {value if isinstance(value, str) else json.dumps(value, indent=2)}")


@dead.command()
def requeue(names: Names) -> None:
    """Put jobs into their queues again, with all their attempts."""
    jobs, failed = _open().jobs, 0
    for name in names:
        try:
            jobs.requeue(_find(jobs, name))
            typer.echo(f"{name} waits again.")
        except RecordUnreadable as error:
            typer.echo(f"{name} stays: {error}", err=True)
            failed += 1
    raise typer.Exit(1 if failed else 0)


@dead.command()
def drop(names: Names) -> None:
    """Remove dead letters for good, with the record and the upload of their jobs."""
    records = _open()
    for name in names:
        letter = _find(records.jobs, name)
        records.jobs.dead.drop(letter)
        records.jobs.index.reindex([letter.name])
        if letter.kind == "job" and name.replace("-", "").replace("_", "").isalnum():
            records.blobs.remove(f"uploads/{name}")
        typer.echo(f"{name} is dropped.")


def _find(jobs: "Jobs", name: str) -> "DeadLetter":
    letter = jobs.dead.find(name)
    if letter is None:
        complain(f"There is no dead letter called {name}; reelword dead list has them all.")
        raise typer.Exit(1)
    return letter
