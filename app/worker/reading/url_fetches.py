"""Fetches the videos of jobs that have an address in place of a file into the blobs.

Once it is there a fetched video is like an upload: an attempt that comes later finds it. A file that is on
its way lies in the staging folder, where it goes with the process that writes it.
"""

import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import anyio.to_thread
import structlog
from anyio.from_thread import start_blocking_portal

from app.errors import UrlNotAllowed
from app.fetching.fetch import FetchLimits, fetch
from app.jobs.blobs import Blobs
from app.jobs.job import Job
from app.settings import Settings
from app.worker.attempt import Attempt
from app.worker.watchdog import Watchdog

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
            if not self.blobs.exists(attempt.claim.job.upload):
                with self.blobs.staged() as file, start_blocking_portal() as portal:
                    fetching = portal.start_task_soon(self._fetch_to, attempt, file)
                    with self.watch.guard([attempt], fetching.cancel):
                        fetching.result()
        except Exception as error:
            return error
        finally:
            attempt.fetched = round(time.monotonic() - began, 4)
        return None

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

    def _limits_of(self, job: Job) -> FetchLimits:
        job_bytes = None if job.submission.limits is None else job.submission.limits.upload_bytes
        limits = FetchLimits.of(self.settings)
        return limits if job_bytes is None else replace(limits, max_bytes=min(job_bytes, limits.max_bytes))
