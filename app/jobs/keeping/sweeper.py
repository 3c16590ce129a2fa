"""Removes what is left over while the service runs; a thread of every API and every worker.

    results         that have been kept long enough
    staged files    whose writer was killed, on this machine
    uploads         of jobs that are done with them, or of which there is no record
    results         of jobs that were canceled or have expired, or of which there is no record
    results         of attempts that were not the one that counted
    kept uploads    beyond the budget, of the owner who has most those of the jobs that finished first
    results         beyond the budget without any of these, in the same order
    the index       entries of records that have vanished (app/jobs/job_index.py)

A blob without a record may be one whose record is on its way, so it must have been without in two rounds in
a row. These are told apart by this process's own clock alone: no two machines need agree about the time. Of
all processes on one Redis, one sweeps the blobs. It does so only where the blobs belong to that Redis.
"""

import math
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

import structlog

from app.errors import QueueUnavailable
from app.jobs.batches import held_uploads
from app.jobs.blobs import BlobMissingError, Blobs
from app.jobs.job_store import AT_A_TIME, Jobs
from app.jobs.keeping.kept_uploads import KeptUploads, in_order_of_leaving
from app.settings import Settings

STAGED_AGE = 60.0  #: seconds; a staged file's lock is what counts, see Blobs.sweep
MINE_ROUNDS = 3  #: rounds without a word after which another process sweeps the blobs
ADOPTED_AFTER = 3600.0  #: seconds without a sweep after which blobs may be taken over by an empty Redis
OWNER = "owner"  #: key of the blob that names the Redis and the namespace that its neighbours belong to
#: States in which a job needs its upload, or its results, no more. A failed one may be sent in again by hand
#: and keeps the segments of its film, one that succeeded keeps its upload as long as the settings say, and a
#: state that this version does not know keeps everything.
DONE = ("canceled", "expired")

log = structlog.get_logger(__name__)


@dataclass(eq=False)
class Sweeper:
    """Sweeps every ``sweep_seconds`` while it is entered."""

    jobs: Jobs  #: on a connection of its own where others must not wait
    blobs: Blobs  #: what is swept
    settings: Settings  #: how often, and the room for results
    also: Callable[[], object] = object  #: sweeps what else there is on this machine

    def __post_init__(self) -> None:
        self._kept = KeptUploads(self.jobs, self.blobs)
        self._name = uuid.uuid4().hex
        self._seen: set[str] = set()
        self._written = ""  # the owner blob as this process left it
        self._met = ("", 0.0)  # the owner blob as it was found, and since when
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sweeper", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        self._thread.join(5)  # a store that does not answer holds up no ending

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                self.sweep()
            except QueueUnavailable as error:
                log.info("no sweep: redis is away", reason=str(error))
            except Exception:
                log.exception("the sweep failed and is tried again")
            self._over.wait(self.settings.sweep_seconds)

    def sweep(self) -> None:
        """Sweeps one round. Raises QueueUnavailable, and what the blob store raises."""
        if staged := self.blobs.sweep(STAGED_AGE):
            log.info("staged files removed", count=staged)
        self.also()
        self._expire_due()
        if not self._is_turn():
            self._seen = set()
            return
        self.jobs.index.mend()
        if not self._owns_blobs():  # another process may: of a Redis that was emptied only who swept before
            self._seen = set()
            if self.jobs.server.get(self._key("sweeper")) == self._name:
                self.jobs.server.delete(self._key("sweeper"))
            return
        sizes = self.blobs.sizes("results", depth=2)
        self._sweep_orphans(sizes)
        self._keep_budget(sizes)

    def _expire_due(self) -> None:
        """Forgets all results that have been kept long enough."""
        count = 0
        while due := self.jobs.due(AT_A_TIME):
            for job_id in filter(self.jobs.expire, due):
                self.blobs.remove(f"results/{job_id}")
                self.blobs.remove(f"uploads/{job_id}")
                count += 1
        if count:
            log.info("results expired", count=count)

    def _is_turn(self) -> bool:
        """Returns whether this process sweeps the blobs: one does, since two rounds need its memory."""
        key, milliseconds = self._key("sweeper"), round(self.settings.sweep_seconds * MINE_ROUNDS * 1000)
        if self.jobs.server.set(key, self._name, px=milliseconds, nx=True):
            return True
        if self.jobs.server.get(key) != self._name:
            return False
        self.jobs.server.pexpire(key, milliseconds)
        return True

    def _owns_blobs(self) -> bool:
        """Returns whether these blobs are of this namespace of this Redis, or of one that has been emptied
        since.

        The owner's name is in the blobs and in Redis. Each round writes a new number after the name in the
        blobs: a Redis that knows no name yet may be a second one beside a living first, and takes over only
        what this very process has swept so far, or what no process has swept for ADOPTED_AFTER.
        """
        key = self._key("blobs")
        redis_owner: Any = self.jobs.server.get(key)
        try:
            mark = self.blobs.read(OWNER).decode()
        except BlobMissingError:
            mark = ""
        owner = " ".join(mark.split()[:2]) or redis_owner or f"{self.jobs.keys.namespace} {uuid.uuid4().hex}"
        if owner != redis_owner and mark and not (redis_owner is None and self._may_adopt(mark)):
            log.warning("the blobs belong to another Redis or namespace and are not swept", owner=owner)
            return False
        self._written = f"{owner} {uuid.uuid4().hex}"
        self.blobs.write(OWNER, self._written.encode())
        if redis_owner is None:
            self.jobs.server.set(key, owner)
        return True

    def _may_adopt(self, mark: str) -> bool:
        if mark != self._met[0]:
            self._met = (mark, time.monotonic())
        is_left = time.monotonic() - self._met[1] > ADOPTED_AFTER
        return mark.split()[0] == self.jobs.keys.namespace and (mark == self._written or is_left)

    def _sweep_orphans(self, sizes: Mapping[str, int]) -> None:
        """Removes what was an orphan in the last round already."""
        orphans = [
            *self._orphans("uploads"),
            *self._late_uploads(),
            *self._orphans("results"),
            *self._late_results(sizes),
        ]
        gone = [key for key in orphans if key in self._seen]
        for key in gone:
            self.blobs.remove(key)
        self._seen = set(orphans) - set(gone)
        if gone:
            log.info("orphans removed", count=len(gone), examples=gone[:3])

    def _orphans(self, folder: str) -> list[str]:
        """Finds what belongs to jobs without a record, or done with it; what cannot be read stays."""
        letters = {letter.name for letter in self.jobs.dead.all()}
        names = sorted(set(self.blobs.names(folder)) - letters - held_uploads(self.jobs))
        states = self.jobs.fields(names, "state")
        return [f"{folder}/{name}" for name, [state] in states if state in (None, *DONE)]

    def _late_results(self, sizes: Mapping[str, int]) -> Iterable[str]:
        """Finds results of attempts whose claim was lost.

        Records of older versions name none, and keep all.
        """
        parts = defaultdict[str, list[str]](list)
        for name in sizes:
            job_id, _, part = name.partition("/")
            parts[job_id].append(part)
        several = [job_id for job_id, tokens in parts.items() if len(tokens) > 1]
        for job_id, [token] in self.jobs.fields(several, "results"):
            if token is not None:
                yield from (f"results/{job_id}/{part}" for part in parts[job_id] if part != token)

    def _late_uploads(self) -> list[str]:
        """Finds uploads that have been kept long enough, by Redis's clock."""
        seconds = self.settings.upload_seconds
        if math.isinf(seconds):
            return []
        kept = list(self._kept.ids())
        now = self.jobs.now()
        return [
            f"uploads/{job_id}"
            for job_id, [ended_at] in self.jobs.fields(kept, "ended_at")
            if ended_at is not None and now - float(ended_at) >= seconds
        ]

    def _keep_budget(self, parts: Mapping[str, int]) -> None:
        """Forgets kept uploads, then results, as ``in_order_of_leaving`` has them, until the rest fits."""
        budget = self.settings.max_results_bytes
        sizes: dict[str, int] = {}
        for name, size in parts.items():
            job_id = name.partition("/")[0]
            sizes[job_id] = sizes.get(job_id, 0) + size
        total = sum(sizes.values())
        self._keep_uploads_within(budget - total)
        for job_id in self._leaving(sizes) if total > budget else ():
            if total <= budget:
                return
            self.blobs.remove(f"results/{job_id}")
            self.jobs.expire(job_id)
            total -= sizes[job_id]
            log.info("result removed: the budget is spent", job=job_id, bytes=sizes[job_id])

    def _keep_uploads_within(self, room: int) -> None:
        """Removes kept uploads, the first finished of the owner who has most, until the rest fits."""
        sizes = self.blobs.sizes("uploads")
        kept = list(self._kept.leaving(sizes))
        total = sum(sizes[job_id] for job_id in kept)
        for job_id in kept:
            if total <= room:
                return
            self.blobs.remove(f"uploads/{job_id}")
            total -= sizes[job_id]
            log.info("kept upload removed: the budget is spent", job=job_id, bytes=sizes[job_id])

    def _leaving(self, sizes: Mapping[str, int]) -> Iterator[str]:
        """Yields which of the jobs that have ended go, one by one."""
        ends = [
            (float(ended_at), job_id)
            for job_id, [ended_at] in self.jobs.fields(list(sizes), "ended_at")
            if ended_at is not None
        ]
        ended = {job_id: sizes[job_id] for _, job_id in sorted(ends)}
        return in_order_of_leaving(ended, self.jobs.index.owners(list(ended)))

    def _key(self, name: str) -> str:
        return f"{self.jobs.keys.namespace}:{name}"
