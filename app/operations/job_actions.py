"""Does to jobs what operators ask for: puts them into their queue again, cancels and purges them."""

from __future__ import annotations

from app.errors import JobNotRequeued, RecordUnreadable
from app.jobs.blobs import Blobs
from app.jobs.job import Job
from app.jobs.job_store import Ending, Jobs
from app.jobs.redis_client import LuaScript, unavailable_if_away

REVIVED = ("failed", "canceled")


class JobActions:
    """Acts on jobs of one service. Raises QueueUnavailable, and RecordUnreadable of a record that is damaged.

    Args:
        jobs: the records.
        blobs: uploads and results.
    """

    def __init__(self, jobs: Jobs, blobs: Blobs) -> None:
        self._jobs, self._blobs = jobs, blobs
        self._revive = LuaScript(jobs.server, "revive")

    def requeue(self, name: str) -> None:
        """Puts a job that failed or was canceled, or that is a dead letter, into its queue again.

        It has all its attempts, and what it had found out is forgotten.

        Raises:
            JobNotRequeued: there is no such job, it is in another state, or its upload is gone.
        """
        letter = self._jobs.dead.find(name)
        if letter is not None:
            self._requeue_letter(name)
            return
        job = self._find(name)
        if job.state in REVIVED and not self._has_file(job):
            raise JobNotRequeued(f"The upload of job {name} is not kept any more.")
        state = self._run_revive(job)
        if state != "queued" or job.state not in REVIVED:
            raise JobNotRequeued(f"Job {name} is {job.state}: only failed and canceled jobs are put back.")

    def _requeue_letter(self, name: str) -> None:
        letter = self._jobs.dead.find(name)
        try:
            if letter is not None:
                self._jobs.requeue(letter)
        except RecordUnreadable as error:
            raise JobNotRequeued(str(error)) from error

    def _has_file(self, job: Job) -> bool:
        """Returns whether the job could run: its upload is kept, or its worker fetches it again."""
        return job.submission.source_url is not None or self._blobs.exists(job.upload)

    def _run_revive(self, job: Job) -> str:
        keys = self._jobs.keys
        names = [keys.job(job.id), keys.stream(job.priority), keys.expiry, keys.events(job.id)]
        with unavailable_if_away():
            return str(self._revive([*names, keys.clock, keys.dead], [job.id, self._jobs.lease_ms]))

    def cancel(self, name: str) -> Ending:
        """Cancels a job as ``DELETE /jobs/{id}`` does, but leaves the result of one that is over."""
        ending = self._jobs.cancel(name)
        if ending == "done":
            self._blobs.remove(f"uploads/{name}")
        return ending

    def purge(self, job: Job) -> None:
        """Deletes the result and the upload of a job that is over."""
        if job.state != "canceled":
            self._jobs.expire(job.id)
        self._blobs.remove(job.upload)
        self._blobs.remove(f"results/{job.id}")

    def size(self, job: Job) -> int:
        """Adds up the bytes that ``purge`` would free."""
        upload = self._blobs.sizes("uploads/" + job.id) if self._blobs.exists(job.upload) else {}
        return sum(upload.values()) + sum(self._blobs.sizes(f"results/{job.id}").values())

    def _find(self, name: str) -> Job:
        job = self._jobs.get(name)
        if job is None:
            raise JobNotRequeued(f"There is no job {name[:64]}.")
        return job
