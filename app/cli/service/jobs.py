"""Lists, shows, requeues, cancels and purges jobs: ``python -m app jobs``.

It speaks to Redis and the blobs, not to the API: it works while no API runs, and sees everybody's jobs.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, get_args

import typer

from app.documents.job import document_of, rfc3339
from app.errors import JobNotRequeued, RecordUnreadable, UsageError
from app.jobs.blobs import Blobs
from app.jobs.job import Job, State
from app.jobs.job_index import JobFilter, JobIndex
from app.jobs.job_store import Jobs
from app.jobs.redis_client import connect, redis_url
from app.operations.job_actions import JobActions
from app.settings import load_settings
from app.terminal import complain, print_table, printable

PATIENCE = 2.0  #: seconds of trying again while Redis is away
PAGE = 200  #: jobs read at a time
UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
STATES: tuple[State, ...] = get_args(State)

Names = Annotated[list[str], typer.Argument(metavar="JOB", help="As jobs list has it.", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
States = Annotated[
    str | None, typer.Option("--state", help=f"States, with commas between: {', '.join(STATES)}.")
]

jobs = typer.Typer(no_args_is_help=True, help="List, show, requeue, cancel and purge jobs.")


@dataclass(frozen=True)
class Service:
    """Holds what the commands act on."""

    jobs: Jobs
    blobs: Blobs
    actions: JobActions

    @classmethod
    def connect(cls) -> Service:
        """Makes the clients by the settings. Raises RedisMissing where no server is named or runs."""
        configured = load_settings()
        found = Jobs.from_settings(connect(redis_url(configured), PATIENCE), configured)
        blobs = Blobs(configured.blob_url, configured.staging)
        return cls(found, blobs, JobActions(found, blobs))

    def find(self, name: str) -> Job:
        """Reads a job; ends the command with 1 where there is none."""
        job = self.jobs.get(name)
        if job is None:
            complain(f"There is no job {name}; python -m app jobs list shows them.")
            raise typer.Exit(1)
        return job


@jobs.command("list")
def list_jobs(
    state: States = None,
    captioner: Annotated[str | None, typer.Option(help="Who writes, or wrote.")] = None,
    batch: Annotated[str | None, typer.Option(help="The batch that they belong to.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Most jobs.")] = 50,
    as_json: AsJson = False,
) -> None:
    """List jobs, newest first: state, age, and caption or error."""
    service = Service.connect()
    wanted = JobFilter(states=_states(state), captioner=captioner, batch=batch)
    found = [job for job, _ in zip(_walk(service.jobs.index, wanted), range(limit), strict=False)]
    if as_json:
        typer.echo(json.dumps([_summary(job) for job in found]))
    elif found:
        print_table(("job", "state", "age", "file, and what came of it"), [_row(job) for job in found])
    else:
        typer.echo("There are no such jobs.")


@jobs.command()
def show(
    name: Annotated[str, typer.Argument(metavar="JOB", help="As jobs list has it.")], as_json: AsJson = False
) -> None:
    """Show a job whole: its record, attempts, timings, error and worker."""
    service = Service.connect()
    job = service.find(name)
    record = _record(job, service)
    document = document_of(job, service.blobs).model_dump(mode="json")
    if as_json:
        typer.echo(json.dumps({**document, "record": record}))
        return
    timings = ", ".join(f"{stage} {spent:.2f} s" for stage, spent in job.timings.items() if spent is not None)
    error = "" if job.error is None else f"{job.error['message']} {job.error['hint']} [{job.error['code']}]"
    told: dict[str, Any] = {
        **{member: document[member] for member in ("id", "state", "stage", "filename", "created_at")},
        **{member: document[member] for member in ("started_at", "ended_at", "caption")},
        "error": error,
        "timings": timings,
        **record,
    }
    rows = [(member, _text(value)) for member, value in told.items() if value not in (None, "", {}, [])]
    print_table(("member", "value"), rows)


@jobs.command()
def requeue(names: Names) -> None:
    """Put jobs that failed or were canceled, or dead letters, into their queues again, with all attempts."""
    service, failed = Service.connect(), 0
    for name in names:
        try:
            service.actions.requeue(name)
            typer.echo(printable(f"{name} waits again."))
        except (JobNotRequeued, RecordUnreadable) as error:
            complain(f"{name} stays: {error.advice}")
            failed += 1
    raise typer.Exit(1 if failed else 0)


@jobs.command()
def cancel(names: Names) -> None:
    """Cancel jobs: at once where they wait, within two seconds where they run. Results are kept."""
    service, failed = Service.connect(), 0
    for name in names:
        job = service.find(name)
        ending = service.actions.cancel(job.id)
        said = {
            "done": "is canceled.",
            "asked": "is told to stop.",
            "over": f"is over already: it has {job.state}.",
            "lost": "is gone.",
        }[ending]
        typer.echo(printable(f"{name} {said}"))
        failed += ending == "lost"
    raise typer.Exit(1 if failed else 0)


@jobs.command()
def purge(
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
    service = Service.connect()
    age = 0.0 if older_than is None else _seconds(older_than)
    found = map(service.find, names) if names else _walk(service.jobs.index, JobFilter(states=_states(state)))
    freed, count = 0, 0
    for job in (each for each in found if _is_due(each, age, _states(state))):
        size = service.actions.size(job)
        if not dry_run:
            service.actions.purge(job)
        freed, count = freed + size, count + 1
        line = {"id": job.id, "state": job.state, "bytes": size, "purged": not dry_run}
        typer.echo(json.dumps(line) if as_json else f"{job.id}  {job.state}  {_size(size)}")
    if not as_json:
        typer.echo(f"{count} {'would be' if dry_run else 'are'} purged, {_size(freed)}.")


def _walk(index: JobIndex, wanted: JobFilter) -> Iterator[Job]:
    """Yields the jobs that are wanted, newest first, a page at a time."""
    page = index.page(wanted, PAGE)
    yield from page.jobs
    while page.next is not None:
        page = index.page(wanted, PAGE, page.next)
        yield from page.jobs


def _states(text: str | None) -> Sequence[State]:
    named = [name.strip() for name in (text or "").split(",") if name.strip()]
    for name in named:
        if name not in STATES:
            raise UsageError(f"--state: {name} is no state; there are {', '.join(STATES)}.")
    return [state for state in STATES if state in named]


def _seconds(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text.strip())
    if found is None:
        raise UsageError(f"--older-than: {text} is no time; write 90s, 30m, 12h or 7d.")
    return float(found[1]) * UNITS[found[2]]


def _is_due(job: Job, age: float, states: Sequence[State]) -> bool:
    """Tells whether a job is over, in one of the states, and for long enough; expired ones have nothing."""
    if not job.is_over or job.state == "expired" or (states and job.state not in states):
        return False
    return time.time() - (job.ended_at or job.created_at) >= age


def _summary(job: Job) -> dict[str, Any]:
    return {
        "id": job.id, "state": job.state, "stage": job.stage, "progress": job.progress,
        "attempt": job.attempt, "filename": job.filename, "priority": job.priority,
        "created_at": rfc3339(job.created_at), "ended_at": rfc3339(job.ended_at),
        "captioner": job.options.captioner, "caption": job.answer.get("caption"), "error": job.error,
        "worker": job.worker, "batch": job.submission.batch, "owner": job.submission.owner,
    }  # fmt: skip


def _record(job: Job, service: Service) -> dict[str, Any]:
    """Lists what the job's document does not tell: for the operator."""
    return {
        "attempt": f"{job.attempt} of {service.jobs.attempts}", "worker": job.worker,
        "priority": job.priority, "entry": job.entry, "cancel_requested": job.cancel_requested,
        "options": job.options.model_dump(mode="json", exclude_none=True),
        "submission": job.submission.model_dump(mode="json", exclude_defaults=True),
        "upload": job.upload, "upload_kept": service.blobs.exists(job.upload),
        "results": job.results if job.state == "succeeded" else None,
    }  # fmt: skip


def _row(job: Job) -> tuple[str, str, str, str]:
    state = f"{job.state} {job.progress:.0%}" if job.state == "running" else job.state
    came = job.answer.get("caption") or ("" if job.error is None else f"[{job.error['code']}]")
    what = "\n".join(filter(None, (job.filename or job.submission.source_url or "", came)))
    return job.id, state, _age(time.time() - job.created_at), what


def _age(seconds: float) -> str:
    """Says roughly how long ago, in the largest unit that fits."""
    for name, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f}{name}"
    return f"{max(0.0, seconds):.0f}s"


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
