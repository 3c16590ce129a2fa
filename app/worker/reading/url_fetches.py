"""Fetches the videos of jobs that have an address in place of a file into the blobs.

Once it is there a fetched video is like an upload: an attempt that comes later finds it. A file that is on
its way lies in the staging folder, where it goes with the process that writes it.
"""

import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import structlog

from app.errors import UrlNotAllowed
from app.fetching.fetch import FetchLimits, fetch
from app.jobs.blobs import Blobs
from app.jobs.job import Job
from app.settings import Settings
from app.worker.attempt import Attempt
from app.worker.watchdog import Watchdog

LOOK_SECONDS = 0.1  #: between two looks whether a job is to be stopped

log = structlog.get_logger(__name__)


@dataclass(eq=False)
class UrlFetches:
    """Fetches for one worker."""

    blobs: Blobs  #: where videos go
    watch: Watchdog  #: keeps the leases and stops what is canceled
    settings: Settings  #: limits, and which private hosts are allowed

    def fetch(self, attempt: Attempt) -> Exception | None:
        """Fetches a job's video, unless that is done or stopped; returns why it could not be had."""
        began = time.monotonic()
        attempt.set_stage("fetch")
        try:
            with self.watch.guard([attempt], _nothing):
                if not self.blobs.exists(attempt.claim.job.upload):
                    with self.blobs.staged() as file:
                        anyio.run(self._fetch_unless_stopped, attempt, file)
        except Exception as error:
            return error
        finally:
            attempt.fetched = round(time.monotonic() - began, 4)
        return None

    async def _fetch_unless_stopped(self, attempt: Attempt, file: Path) -> None:
        error: Exception | None = None
        async with anyio.create_task_group() as group:
            group.start_soon(self._cancel_when_stopped, attempt, group.cancel_scope)
            try:
                await self._fetch_to(attempt, file)
            except Exception as failure:  # raised outside of the group, which would wrap it
                error = failure
            group.cancel_scope.cancel()
        if error is not None:
            raise error

    async def _fetch_to(self, attempt: Attempt, file: Path) -> None:
        if self.settings.urls == "off":
            raise UrlNotAllowed("This server does not fetch videos.")
        job = attempt.claim.job
        size = await fetch(
            str(job.submission.source_url), file, self._limits_of(job), partial(attempt.set_stage, "fetch")
        )
        if attempt.stopped is None:
            await anyio.to_thread.run_sync(self.blobs.adopt, file, job.upload)
            log.info("video fetched", job=job.id, bytes=size)

    async def _cancel_when_stopped(self, attempt: Attempt, scope: anyio.CancelScope) -> None:
        while attempt.stopped is None:
            await anyio.sleep(LOOK_SECONDS)
        scope.cancel()

    def _limits_of(self, job: Job) -> FetchLimits:
        job_bytes = None if job.submission.limits is None else job.submission.limits.upload_bytes
        limits = FetchLimits.of(self.settings)
        return limits if job_bytes is None else replace(limits, max_bytes=min(job_bytes, limits.max_bytes))


def _nothing() -> None:
    """Kills nothing: a fetch looks by itself whether it is to continue."""
