"""Declares ``reelword jobs``: lists, shows, requeues, cancels and purges jobs."""

import json
import re
import time
from collections.abc import Sequence
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.model_options import AsJson, FieldsOf, settings_with
from app.cli.server import ServerChoice
from app.errors import JobNotRequeued, RecordUnreadable, UsageError
from app.terminal import complain, print_table, say

if TYPE_CHECKING:
    from app.cli.service.job_records import JobRecords, ServerJobs
    from app.jobs.job import State

UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
STATES: "tuple[State, ...]" = ("queued", "running", "succeeded", "failed", "canceled", "expired")
PURGED = ("succeeded", "failed", "canceled")  #: states of jobs that may have something to be deleted
#: Of a job's document, what is shown first.
SHOWN = ("id", "state", "stage", "filename", "created_at", "started_at", "ended_at", "caption")

Service = Annotated[ServerChoice, FieldsOf("Where it is done")]
Names = Annotated[list[str], typer.Argument(metavar="JOB", help="As jobs list has it.", show_default=False)]
States = Annotated[
    str | None, typer.Option("--state", help=f"States, with commas between: {', '.join(STATES)}.")
]

jobs = typer.Typer(no_args_is_help=True)


def _open(service: ServerChoice) -> "JobRecords | ServerJobs":
    """By the API of a service that is named; else by Redis, which is there while no API runs."""
    from app.cli.service.job_records import JobRecords, ServerJobs

    settings = settings_with()
    server = service.find_named(settings)
    return JobRecords.connect(settings) if server is None else ServerJobs(server)


@jobs.command("list")
def list_jobs(
    service: Service,
    state: States = None,
    captioner: Annotated[str | None, typer.Option(help="Who writes, or wrote.")] = None,
    batch: Annotated[str | None, typer.Option(help="The batch that they belong to.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Most jobs.")] = 50,
    as_json: AsJson = False,
) -> None:
    """List jobs, newest first: state, age, and caption or error."""
    summaries = list(islice(_open(service).summaries(_states(state), captioner, batch), limit))
    if as_json:
        typer.echo(json.dumps(summaries))
    elif summaries:
        print_table(("job", "state", "age", "file, and what came of it"), [_row(each) for each in summaries])
    else:
        say("There are no such jobs.")


@jobs.command()
def show(
    name: Annotated[str, typer.Argument(metavar="JOB", help="As jobs list has it.")],
    service: Service,
    as_json: AsJson = False,
) -> None:
    """Show a job whole: its record, attempts, timings, error and worker."""
    document = _open(service).show(name)
    if as_json:
        typer.echo(json.dumps(document))
        return
    error, timings = document["error"], document["timings"] or {}
    members: dict[str, Any] = {
        **{member: document[member] for member in SHOWN},
        "error": "" if error is None else f"{error['message']} {error['hint']} [{error['code']}]",
        "timings": ", ".join(
            f"{stage} {spent:.2f} s" for stage, spent in timings.items() if spent is not None
        ),
        **document["record"],
    }
    shown = {member: value for member, value in members.items() if value not in (None, "", {}, [])}
    rows = [(name, each if isinstance(each, str) else json.dumps(each)) for name, each in shown.items()]
    print_table(("member", "value"), rows)


@jobs.command()
def requeue(names: Names, service: Service) -> None:
    """Put jobs that failed or were canceled, or dead letters, into their queues again, with all attempts."""
    records, failed = _open(service), 0
    for name in names:
        try:
            records.requeue(name)
            say(f"{name} waits again.")
        except (JobNotRequeued, RecordUnreadable) as error:
            complain(f"{name} stays: {error.advice}")
            failed += 1
    raise typer.Exit(1 if failed else 0)


@jobs.command()
def cancel(names: Names, service: Service) -> None:
    """Cancel jobs: at once where they wait, within two seconds where they run. Results are kept."""
    records, failed = _open(service), 0
    for name in names:
        ending = records.cancel(name)
        say(f"{name} {ending}")
        failed += ending == "is gone."
    raise typer.Exit(1 if failed else 0)


@jobs.command()
def purge(
    service: Service,
    names: Annotated[list[str] | None, typer.Argument(metavar="[JOB]", show_default=False)] = None,
    state: States = None,
    older_than: Annotated[
        str | None, typer.Option(metavar="TIME", help="Ended longer ago than that: 90s, 30m, 12h or 7d.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be deleted, and stop.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete results and uploads of jobs that are over: of those named, or by state and age."""
    if not names and state is None and older_than is None:
        raise UsageError("Say what is to be purged: name jobs, or give --state or --older-than.")
    age = 0.0 if older_than is None else _seconds(older_than)
    freed, count, records, states = 0, 0, _open(service), _states(state)
    for job in map(records.show, names) if names else records.summaries(states):
        if not _is_due(job, age, states):
            continue
        size = records.size(job["id"])
        if not dry_run:
            records.purge(job["id"])
        freed, count = freed + (size or 0), count + 1
        line = {"id": job["id"], "state": job["state"], "bytes": size, "purged": not dry_run}
        typer.echo(json.dumps(line) if as_json else f"{line['id']}  {line['state']}  {_size(size)}")
    if not as_json:
        typer.echo(f"{count} {'would be' if dry_run else 'are'} purged, {_size(freed)}.")


def _is_due(job: dict[str, Any], age: float, states: "Sequence[State]") -> bool:
    """Returns whether a job is over, in one of the states, for long enough; expired ones have nothing."""
    if job["state"] not in PURGED or (states and job["state"] not in states):
        return False
    ended = datetime.fromisoformat(job["ended_at"] or job["created_at"]).timestamp()
    return time.time() - ended >= age


def _states(text: str | None) -> "Sequence[State]":
    names = [name.strip() for name in (text or "").split(",") if name.strip()]
    for name in names:
        if name not in STATES:
            raise UsageError(f"--state: {name} is no state; there are {', '.join(STATES)}.")
    return [state for state in STATES if state in names]


def _seconds(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text.strip())
    if match is None:
        raise UsageError(f"--older-than: {text} is no time; write 90s, 30m, 12h or 7d.")
    return float(match[1]) * UNITS[match[2]]


def _row(job: dict[str, Any]) -> tuple[str, str, str, str]:
    state = f"{job['state']} {job['progress']:.0%}" if job["state"] == "running" else job["state"]
    outcome = job["caption"] or ("" if job["error"] is None else f"[{job['error']['code']}]")
    age = time.time() - datetime.fromisoformat(job["created_at"]).timestamp()
    return job["id"], state, _age(age), "\n".join(filter(None, (job["filename"], outcome)))


def _age(seconds: float) -> str:
    """Writes roughly how long ago, in the largest unit that fits."""
    for name, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f}{name}"
    return f"{max(0.0, seconds):.0f}s"


def _size(count: int | None) -> str:
    return "" if count is None else f"{count / 1e6:.1f} MB"
