"""Reads and changes the jobs of a service by its Redis and blobs: what ``reelword jobs`` does here.

It works while no API runs, and sees the jobs of all clients.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from app.documents.job import document_of, rfc3339
from app.jobs.blobs import Blobs
from app.jobs.job import Job, State
from app.jobs.job_index import JobFilter
from app.jobs.job_store import Jobs
from app.jobs.redis_client import connect, redis_url
from app.operations.job_actions import JobActions
from app.settings import Settings
from extractors.errors import ReelwordError

Summary = dict[str, Any]
PATIENCE = 2.0  #: seconds of trying again while Redis is away
PAGE = 200  #: jobs read at a time
#: What an asked-for cancel came to, after the job's name.
ENDINGS = {"done": "is canceled.", "asked": "is told to stop.", "lost": "is gone."}


class NoSuchJob(ReelwordError):
    """Is raised where there is no job of that name."""

    code = "no_such_job"
    hint = "See them with reelword jobs list."


@dataclass(frozen=True)
class JobRecords:
    """Holds what the commands act on."""

    jobs: Jobs
    blobs: Blobs
    actions: JobActions

    @classmethod
    def connect(cls, settings: Settings) -> JobRecords:
        """Makes the clients by the settings. Raises RedisMissing where no server is named or runs."""
        jobs = Jobs.from_settings(connect(redis_url(settings), PATIENCE), settings)
        blobs = Blobs(settings.blob_url, settings.staging)
        return cls(jobs, blobs, JobActions(jobs, blobs))

    def summaries(
        self, states: Sequence[State], captioner: str | None, batch: str | None
    ) -> Iterator[Summary]:
        """Yields what jobs are, newest first, a page at a time.

        Args:
            states: those that are listed; all where there is none.
            captioner: who writes, or wrote; None for any.
            batch: that they belong to; None for any.
        """
        for job in self._walk(JobFilter(states=states, captioner=captioner, batch=batch)):
            yield _summarise(job)

    def show(self, name: str) -> Summary:
        """Returns the job's document, with ``record``: what it does not tell, for the operator.

        Raises NoSuchJob.
        """
        job = self._find(name)
        document = document_of(job, self.blobs).model_dump(mode="json")
        return {**document, "record": self._describe(job)}

    def requeue(self, name: str) -> None:
        """Puts a job or a dead letter into its queue again. Raises JobNotRequeued, RecordUnreadable."""
        self.actions.requeue(name)

    def cancel(self, name: str) -> str:
        """Cancels a job; returns what came of it, as a sentence goes on after its name. Raises NoSuchJob."""
        job = self._find(name)
        return {**ENDINGS, "over": f"is over already: it has {job.state}."}[self.actions.cancel(job.id)]

    def purge(
        self, names: Sequence[str], states: Sequence[State], age: float, *, is_dry: bool
    ) -> Iterator[Summary]:
        """Deletes results and uploads of jobs that are over, and yields what each held.

        Args:
            names: of jobs; all jobs where there is none.
            states: those that are purged; all where there is none.
            age: seconds since they ended, at least.
            is_dry: deletes nothing.

        Raises:
            NoSuchJob: there is no job of a name.
        """
        jobs = map(self._find, names) if names else self._walk(JobFilter(states=states))
        for job in jobs:
            if _is_due(job, age, states):
                size = self.actions.size(job)
                if not is_dry:
                    self.actions.purge(job)
                yield {"id": job.id, "state": job.state, "bytes": size, "purged": not is_dry}

    def _find(self, name: str) -> Job:
        job = self.jobs.get(name)
        if job is None:
            raise NoSuchJob(f"There is no job {name}.")
        return job

    def _walk(self, wanted: JobFilter) -> Iterator[Job]:
        page = self.jobs.index.page(wanted, PAGE)
        yield from page.jobs
        while page.next is not None:
            page = self.jobs.index.page(wanted, PAGE, page.next)
            yield from page.jobs

    def _describe(self, job: Job) -> Summary:
        return {
            "attempt": f"{job.attempt} of {self.jobs.attempts}", "worker": job.worker,
            "priority": job.priority, "entry": job.entry, "cancel_requested": job.cancel_requested,
            "options": job.options.model_dump(mode="json", exclude_none=True),
            "submission": job.submission.model_dump(mode="json", exclude_defaults=True),
            "upload": job.upload, "upload_kept": self.blobs.exists(job.upload),
            "results": job.results if job.state == "succeeded" else None,
        }  # fmt: skip


def _is_due(job: Job, age: float, states: Sequence[State]) -> bool:
    """Returns whether a job is over, in one of the states, for long enough; expired ones have nothing."""
    if not job.is_over or job.state == "expired" or (states and job.state not in states):
        return False
    return time.time() - (job.ended_at or job.created_at) >= age


def _summarise(job: Job) -> Summary:
    return {
        "id": job.id, "state": job.state, "stage": job.stage, "progress": job.progress,
        "attempt": job.attempt, "filename": job.filename or job.submission.source_url,
        "priority": job.priority, "created_at": rfc3339(job.created_at), "ended_at": rfc3339(job.ended_at),
        "captioner": job.options.captioner, "caption": job.answer.get("caption"), "error": job.error,
        "worker": job.worker, "batch": job.submission.batch, "owner": job.submission.owner,
    }  # fmt: skip
