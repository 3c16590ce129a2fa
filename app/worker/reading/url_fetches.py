"""Fetches the videos of jobs that have an address in place of a file, side by side, into the blobs.

Once it is there a fetched video is like an upload: an attempt that comes later finds it. A file that is on
its way lies in the staging folder, where it goes with the process that writes it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import structlog

from app.errors import UrlNotAllowed
from app.fetching.addresses import AllowedHosts
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
    """Fetches for one worker.

    blobs: where videos go. watch: keeps the leases and stops what is canceled. settings: limits, and which
    private hosts are allowed.
    """

    blobs: Blobs
    watch: Watchdog
    settings: Settings

    def fetch(self, runs: Sequence[Attempt]) -> Mapping[Attempt, Exception]:
        """Fetches the videos of all runs at once; returns which could not be had, and why.

        Those that the watch stops meanwhile are given up and not among them.
        """
        failed: dict[Attempt, Exception] = {}
        with self.watch.guard(runs, _nothing):
            anyio.run(self._fetch_all, runs, failed)
        return failed

    async def _fetch_all(self, runs: Sequence[Attempt], failed: dict[Attempt, Exception]) -> None:
        async with anyio.create_task_group() as group:
            for run in runs:
                group.start_soon(self._fetch_one, run, failed)

    async def _fetch_one(self, run: Attempt, failed: dict[Attempt, Exception]) -> None:
        """Fetches one video, unless an earlier attempt has."""
        began = time.monotonic()
        run.set_stage("fetch")
        try:
            if await anyio.to_thread.run_sync(self.blobs.exists, run.claim.job.upload):
                return
            with self.blobs.staged() as file:
                await self._fetch_unless_stopped(run, file)
        except Exception as error:
            failed[run] = error
        run.fetched = round(time.monotonic() - began, 4)

    async def _fetch_unless_stopped(self, run: Attempt, file: Path) -> None:
        error: Exception | None = None
        async with anyio.create_task_group() as group:
            group.start_soon(self._cancel_when_stopped, run, group.cancel_scope)
            try:
                await self._fetch_to(run, file)
            except Exception as met:  # outside of the group, which would wrap it
                error = met
            group.cancel_scope.cancel()
        if error is not None:
            raise error

    async def _fetch_to(self, run: Attempt, file: Path) -> None:
        if self.settings.urls == "off":
            raise UrlNotAllowed("This server does not fetch videos.")
        job = run.claim.job
        size = await fetch(
            str(job.submission.source_url), file, self._limits_of(job), partial(run.set_stage, "fetch")
        )
        if run.stopped is None:
            await anyio.to_thread.run_sync(self.blobs.adopt, file, job.upload)
            log.info("video fetched", job=job.id, bytes=size)

    async def _cancel_when_stopped(self, run: Attempt, scope: anyio.CancelScope) -> None:
        while run.stopped is None:
            if run.elapsed > self.settings.job_seconds:  # of several at once the watch stops none
                run.stopped = "deadline"
            await anyio.sleep(LOOK_SECONDS)
        scope.cancel()

    def _limits_of(self, job: Job) -> FetchLimits:
        own = None if job.submission.limits is None else job.submission.limits.upload_bytes
        most = self.settings.max_upload_bytes
        return FetchLimits(
            max_bytes=most if own is None else min(own, most),
            seconds=self.settings.url_seconds,
            min_free=self.settings.min_free_bytes,
            hosts=AllowedHosts(self.settings.url_host_names),
        )


def _nothing() -> None:
    """Kills nothing: each fetch looks by itself whether it is to go on."""
