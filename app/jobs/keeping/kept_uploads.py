"""Removes uploads that are kept of finished jobs: of the owner who has most, that of the first finished job.

A job that has succeeded needs its upload no more: it is kept to be played and to be captioned again, as long
as REELWORD_KEEP_UPLOADS says and there is room. A removal takes nothing else of its job.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import structlog

from app.errors import QueueUnavailable
from app.jobs.blobs import Blobs
from app.jobs.job_store import AT_A_TIME, Jobs

log = structlog.get_logger(__name__)


def in_order_of_leaving(sizes: Mapping[str, int], owners: Mapping[str, str]) -> Iterator[str]:
    """Yields what goes, of the owner who has most bytes then; ``sizes`` has what ended first in front."""
    theirs = defaultdict[str, deque[str]](deque)
    total = Counter[str]()
    for name, size in sizes.items():
        theirs[owners[name]].append(name)
        total[owners[name]] += size
    while theirs:
        owner = max(theirs, key=lambda each: total[each])
        name = theirs[owner].popleft()
        total[owner] -= sizes[name]
        if not theirs[owner]:
            del theirs[owner]
        yield name


class KeptUploads:
    """Finds and removes uploads of jobs that have succeeded."""

    def __init__(self, jobs: Jobs, blobs: Blobs) -> None:
        self._jobs, self._blobs = jobs, blobs

    def ids(self) -> Iterator[str]:
        """Yields the jobs whose upload is kept, in the order in which they ended. Raises QueueUnavailable."""
        names = self._blobs.names("uploads")
        for ended in self._ended() if names else ():
            records = self._jobs.fields([each for each in ended if each in names], "state", "ended_at")
            ends = [(float(end or 0), job_id) for job_id, [state, end] in records if state == "succeeded"]
            yield from (job_id for _, job_id in sorted(ends))  # a score counts whole seconds

    def leaving(self, sizes: Mapping[str, int]) -> Iterator[str]:
        """Yields which uploads of those sizes go, one by one. Raises QueueUnavailable."""
        kept = {job_id: sizes[job_id] for job_id in self.ids() if job_id in sizes}
        yield from in_order_of_leaving(kept, self._jobs.index.owners(list(kept)))

    def make_room(self, missing: Callable[[], int]) -> bool:
        """Removes uploads until there is room on the disk that new ones arrive on, and returns whether there
        is.

        ``missing`` returns how many bytes must become free; it is called again after each removal. Nothing is
        removed where all uploads together would not do, where they lie elsewhere, and where Redis does not
        say whose go.
        """
        if not self._blobs.shares_disk_with_staging():
            return False
        try:
            sizes = self._blobs.sizes("uploads")
            kept = list(self.leaving(sizes))
        except QueueUnavailable as error:
            log.warning("no kept upload is removed: redis is away", reason=str(error))
            return False
        if sum(sizes[job_id] for job_id in kept) < missing():
            return False
        for job_id in kept:
            self._blobs.remove(f"uploads/{job_id}")
            log.info("kept upload removed: the disk is almost full", job=job_id, bytes=sizes[job_id])
            if missing() <= 0:
                return True
        return False

    def _ended(self) -> Iterator[list[str]]:
        """Yields the jobs that are over and not expired, some at a time, the first that ended first."""
        first = 0
        while True:
            job_ids: Any = self._jobs.server.zrange(self._jobs.keys.expiry, first, first + AT_A_TIME - 1)
            if not job_ids:
                return
            yield list(job_ids)
            first += AT_A_TIME
