"""Reads and changes the jobs of a service: what ``reelword jobs`` does.

By Redis and blobs, which works while no API runs and sees the jobs of all clients, or elsewhere by the API.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

from app.cli.server import Server
from app.documents.job import document_of
from app.documents.job_list import summary_of
from app.errors import JobNotRequeued, RecordUnreadable, UsageError
from app.jobs.blobs import Blobs
from app.jobs.job import Job, State
from app.jobs.job_index import JobFilter
from app.jobs.job_store import Jobs
from app.jobs.redis_client import LuaScript, connect, redis_url
from app.settings import Settings
from extractors.errors import ReelwordError

Summary = dict[str, Any]
PATIENCE = 2.0  #: seconds of trying again while Redis is away
#: What an asked-for cancel came to, after the job's name.
ENDINGS = {"done": "is canceled.", "asked": "is told to stop.", "lost": "is gone."}
OVER = ("succeeded", "failed", "canceled")  #: states of jobs that an API does not cancel any more
REVIVED = ("failed", "canceled")  #: states of jobs that may be put into their queue again


class NoSuchJob(ReelwordError, code="no_such_job"):
    """Is raised where there is no job of that name."""

    hint = "See them with reelword jobs list."


@dataclass(frozen=True)
class JobRecords:
    """Acts on jobs of one service. Raises QueueUnavailable, and RecordUnreadable of a damaged record."""

    jobs: Jobs
    blobs: Blobs  #: uploads and results

    @classmethod
    def connect(cls, settings: Settings) -> Self:
        """Makes the clients by the settings. Raises RedisMissing where no server is named or runs."""
        jobs = Jobs.from_settings(connect(redis_url(settings), PATIENCE), settings)
        return cls(jobs, Blobs(settings.blob_url, settings.staging))

    def summaries(
        self, states: Sequence[State], captioner: str | None = None, batch: str | None = None
    ) -> Iterator[Summary]:
        """Lists what jobs are, newest first, a page at a time.

        Args:
            states: those that are listed; all where there is none.
            captioner: who writes, or wrote; None for any.
            batch: that they belong to; None for any.
        """
        job_filter = JobFilter(states=states, captioner=captioner, batch=batch)
        return map(_summarise, self.jobs.index.all(job_filter))

    def show(self, name: str) -> Summary:
        """Returns the job's document, with ``record``, for the operator alone. Raises NoSuchJob."""
        job = self._find(name)
        document = document_of(job, self.blobs).model_dump(mode="json")
        record = {
            "attempt": f"{job.attempt} of {self.jobs.attempts}", "worker": job.worker,
            "priority": job.priority, "entry": job.entry, "cancel_requested": job.cancel_requested,
            "options": job.options.model_dump(mode="json", exclude_none=True),
            "submission": job.submission.model_dump(mode="json", exclude_defaults=True),
            "upload": job.upload, "upload_kept": self.blobs.exists(job.upload),
            "results": job.results if job.state == "succeeded" else None,
        }  # fmt: skip
        return {**document, "record": record}

    def requeue(self, name: str) -> None:
        """Puts a job that failed or was canceled, or that is a dead letter, into its queue again.

        It has all its attempts, and what it had found out is forgotten. Raises JobNotRequeued where there is
        no such job, it is in another state, or its upload is gone.
        """
        if (letter := self.jobs.dead.find(name)) is not None:
            try:
                self.jobs.requeue(letter)
            except RecordUnreadable as error:
                raise JobNotRequeued(str(error)) from error
            return
        if (job := self.jobs.get(name)) is None:
            raise JobNotRequeued(f"There is no job {name[:64]}.")
        if job.state in REVIVED and job.submission.source_url is None and not self.blobs.exists(job.upload):
            raise JobNotRequeued(f"The upload of job {name} is not kept any more.")
        keys, revive = self.jobs.keys, LuaScript(self.jobs.server, "revive")
        names = [keys.job(job.id), keys.stream(job.priority), keys.expiry, keys.events(job.id)]
        state = revive([*names, keys.clock, keys.dead], [job.id, self.jobs.lease_ms])
        if state != "queued" or job.state not in REVIVED:
            raise JobNotRequeued(f"Job {name} is {job.state}: only failed and canceled jobs are put back.")

    def cancel(self, name: str) -> str:
        """Cancels a job as ``DELETE /jobs/{id}`` does, but leaves the result of one that is over.

        Returns what came of it, to follow the job's name in a sentence. Raises NoSuchJob.
        """
        job = self._find(name)
        ending = self.jobs.cancel(job.id)
        if ending == "done":
            self.blobs.remove(job.upload)
        return {**ENDINGS, "over": f"is over already: it has {job.state}."}[ending]

    def purge(self, name: str) -> None:
        """Deletes the result and the upload of a job that is over. Raises NoSuchJob."""
        job = self._find(name)
        self.jobs.expire(job.id)
        self.blobs.remove(job.upload)
        self.blobs.remove(f"results/{job.id}")

    def size(self, name: str) -> int:
        """Adds up the bytes that ``purge`` would free. Raises NoSuchJob."""
        job = self._find(name)
        upload = self.blobs.sizes(f"uploads/{job.id}") if self.blobs.exists(job.upload) else {}
        return sum(upload.values()) + sum(self.blobs.sizes(f"results/{job.id}").values())

    def _find(self, name: str) -> Job:
        job = self.jobs.get(name)
        if job is None:
            raise NoSuchJob(f"There is no job {name}.")
        return job


def _summarise(job: Job) -> Summary:
    """Summarises a job as the API does, and for the operator."""
    return {
        **summary_of(job).model_dump(mode="json"),
        "filename": job.filename or job.submission.source_url, "caption": job.answer.get("caption"),
        "priority": job.priority, "worker": job.worker, "owner": job.submission.owner,
    }  # fmt: skip


class ServerJobs:
    """Does by HTTP what JobRecords does by Redis; all methods raise ServiceUnreachable and ServiceRefused."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def summaries(
        self, states: Sequence[str], captioner: str | None = None, batch: str | None = None
    ) -> Iterator[Summary]:
        filters = {"state": ",".join(states), "captioner": captioner, "batch": batch}
        params = {name: value for name, value in filters.items() if value}
        while True:
            page = self._server.get("/jobs", params=params).json()
            yield from page["jobs"]
            if page["next"] is None:
                return
            params["cursor"] = page["next"]

    def show(self, name: str) -> Summary:
        """Returns the job's document; its record is not for visitors."""
        document: Summary = self._server.get(f"/jobs/{name}").json()
        return {**document, "record": {}}

    def requeue(self, name: str) -> None:
        """Refuses: the API puts no job back. Raises UsageError."""
        raise UsageError(
            f"{name} stays: jobs are requeued where the service's Redis is. Run this there, with --local."
        )

    def cancel(self, name: str) -> str:
        """Cancels a job; returns what came of it, to follow its name in a sentence."""
        state = self._server.get(f"/jobs/{name}").json()["state"]
        if state in OVER:
            return f"is over already: it has {state}."
        return "is canceled." if self._server.delete(f"/jobs/{name}")["state"] in OVER else "is told to stop."

    def purge(self, name: str) -> None:
        self._server.delete(f"/jobs/{name}")

    def size(self, name: str) -> None:
        """Returns None: the API does not tell how many bytes a job has."""
