"""Lists jobs, newest first, a page at a time.

Lua scripts put each job into the index in the very step that writes its record (index_job in lua/common.lua):
a sorted set of all jobs by creation, and one for each state and each owner. A page is found in the smallest
set that has all that is asked for, and looks at a bounded number of records; so a page may have fewer jobs
than asked for and yet a next cursor. The records alone are the truth: what vanished is passed over.

Versions before had no index, and records vanish by themselves when their time is over. ``mend`` walks over
all jobs, a part at each call, and puts both right; the sweeper calls it.
"""

import base64
import binascii
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import redis
import structlog

from app.errors import InvalidCursor, QueueUnavailable, RecordUnreadable
from app.jobs.job import Job, Keys, State
from app.jobs.redis_client import LuaScript

EXAMINED = 1000  #: records that one page looks at
PAGE = 200  #: jobs that are read at a time where all are asked for
AT_A_TIME = 200  #: ids that one call of a script puts right: about two milliseconds of Redis's time
STEPS = 25  #: such calls in one ``mend``
SPARE = 20  #: old jobs that may not be over, when the oldest that are over are looked for
JOB_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class JobFilter:
    """Selects the jobs that match all of its fields; None matches every job."""

    states: Sequence[State] = ()  #: any of them; empty for all
    captioner: str | None = None  #: that writes, or wrote
    batch: str | None = None  #: its id
    owner: str | None = None  #: the id of an API key
    created_after: float | None = None  #: seconds since 1970, themselves not included
    created_before: float | None = None  #: likewise


@dataclass(frozen=True)
class JobPage:
    """Holds a part of a list."""

    jobs: Sequence[Job]
    next: str | None  #: the cursor of what follows; None at the end


@dataclass(frozen=True)
class _Place:
    """Names a job in the list: what follows is older."""

    score: int  #: microseconds since 1970
    job_id: str

    @classmethod
    def read(cls, cursor: str) -> Self:
        try:
            score, _, job_id = base64.b64decode(cursor, altchars=b"-_", validate=True).decode().partition(" ")
            if re.fullmatch(r"[0-9]{1,16}", score) and JOB_ID.fullmatch(job_id):
                return cls(int(score), job_id)
        except (binascii.Error, ValueError):
            pass
        raise InvalidCursor(f"The cursor {cursor[:64]!r} is none that a page of this list ended with.")

    @property
    def cursor(self) -> str:
        return base64.urlsafe_b64encode(f"{self.score} {self.job_id}".encode()).decode()


class JobIndex:
    """Finds pages of jobs, and keeps the index right. Raises QueueUnavailable."""

    def __init__(self, server: redis.Redis, keys: Keys) -> None:
        self._server, self._keys = server, keys
        self._page, self._reindex = (LuaScript(server, name) for name in ("page", "reindex"))
        self._indexed_at, self._record_at = 0, 0  # where ``mend`` resumes

    def page(self, wanted: JobFilter, limit: int = 50, cursor: str | None = None) -> JobPage:
        """Reads a page, newest first.

        Each job that was there when the first page was read, and that is wanted all the time, is on exactly
        one page, however many come meanwhile. A record that cannot be read is on none: it has, or will have,
        a dead letter.

        Args:
            cursor: ``next`` of the page before; None for the first.

        Raises:
            InvalidCursor: no page ended with this cursor.
            QueueUnavailable: Redis is away.
        """
        place, ids, strays = self._find(wanted, limit, None if cursor is None else _Place.read(cursor))
        try:
            self.reindex(strays)
        except QueueUnavailable as error:  # where Redis takes no writes the page is answered all the same
            log.info("the index is not put right", reason=str(error))
        return JobPage(self._read(ids), None if place is None else place.cursor)

    def all(self, wanted: JobFilter) -> Iterator[Job]:
        """Yields all jobs that are wanted, newest first, PAGE of them read at a time."""
        cursor: str | None = None
        while True:
            page = self.page(wanted, PAGE, cursor)
            yield from page.jobs
            if (cursor := page.next) is None:
                return

    def reindex(self, job_ids: Sequence[str]) -> None:
        """Puts these jobs where their records say, and takes out those whose records are gone."""
        for start in range(0, len(job_ids), AT_A_TIME):
            self._reindex(
                [self._keys.clock, self._keys.dead],
                [self._keys.job(""), *job_ids[start : start + AT_A_TIME]],
            )

    def owners(self, job_ids: Sequence[str]) -> dict[str, str]:
        """Finds whose the jobs are; empty for those without a key."""
        owners: dict[str, str] = {}
        for start in range(0, len(job_ids), AT_A_TIME):
            some = list(job_ids[start : start + AT_A_TIME])
            values: Any = self._server.hmget(f"{self._keys.index}:owners", some)
            owners |= {job_id: owner or "" for job_id, owner in zip(some, values, strict=True)}
        return owners

    def oldest_beyond(self, owner: str | None, most: int) -> tuple[int, list[str]]:
        """Counts an owner's jobs beyond ``most``, and lists the oldest: so many, and SPARE more."""
        name = self._keys.index if owner is None else f"{self._keys.index}:owner:{owner}"
        excess = int(self._server.zcard(name)) - most
        ids: Any = self._server.zrange(name, 0, excess + SPARE - 1) if excess > 0 else []
        return excess, list(ids)

    def mend(self) -> None:
        """Takes out what has vanished in its time; puts right a bounded part of the index and the records."""
        while vanished := self._take_vanished():
            self.reindex(vanished)
        for _ in range(STEPS):
            self.reindex(self._next_indexed())
            if self._indexed_at == 0:
                break
        for _ in range(STEPS):
            self.reindex(self._next_records())
            if self._record_at == 0:
                break

    def _take_vanished(self) -> list[str]:
        """Takes some of the expired jobs whose records are gone by now."""
        if self._server.type(self._keys.vanishing) != "zset":
            return []
        now: Any = self._server.time()
        before = now[0] - 1  # of the second that ends now some are still there
        job_ids: Any = self._server.zrange(
            self._keys.vanishing, "-inf", before, byscore=True, offset=0, num=AT_A_TIME
        )
        if job_ids:
            self._server.zrem(self._keys.vanishing, *job_ids)
        return list(job_ids)

    def _next_indexed(self) -> list[str]:
        """Takes the next ids of the index; at its end ``_indexed_at`` is 0."""
        if self._server.type(self._keys.index) != "zset":
            self._indexed_at = 0
            return []
        entries: Any
        self._indexed_at, entries = self._server.zscan(self._keys.index, self._indexed_at, count=AT_A_TIME)
        return [job_id for job_id, _ in entries]

    def _next_records(self) -> list[str]:
        """Takes the ids of the next records of Redis; at the last one ``_record_at`` is 0."""
        prefix = self._keys.job("")
        escaped = re.sub(r"([*?\[\]\\])", r"\\\1", prefix)  # what a pattern reads as more than a letter
        names: Any
        self._record_at, names = self._server.scan(self._record_at, match=f"{escaped}*", count=AT_A_TIME)
        return [name.removeprefix(prefix) for name in names]

    def _find(
        self, wanted: JobFilter, limit: int, behind: _Place | None
    ) -> tuple[_Place | None, list[str], list[str]]:
        """Asks the script for ids: where the next page begins, the page's, and those that lie wrong."""
        earliest = "-inf" if wanted.created_after is None else f"({_microseconds(wanted.created_after)}"
        start, start_id = ("+inf", "") if behind is None else (str(behind.score), behind.job_id)
        if wanted.created_before is not None:
            latest = _microseconds(wanted.created_before)
            if behind is None or latest <= behind.score:
                start, start_id = f"({latest}", ""
        batch = wanted.batch or ""
        (score, job_id), ids, strays = self._page(
            [self._keys.clock, self._keys.dead],
            [
                self._keys.job(""), limit, EXAMINED, start, start_id, earliest,
                json.dumps(list(wanted.states)), wanted.owner or "",
                batch, self._keys.batch_jobs(batch), wanted.captioner or "",
            ],
        )  # fmt: skip
        return (_Place(int(score), job_id) if score else None), ids, strays

    def _read(self, ids: Sequence[str]) -> list[Job]:
        """Reads records in one exchange, without those that vanished or cannot be read."""
        with self._server.pipeline(transaction=False) as pipe:
            for job_id in ids:
                pipe.hgetall(self._keys.job(job_id))
            records = pipe.execute(raise_on_error=False)
        jobs = (self._job(job_id, record) for job_id, record in zip(ids, records, strict=True))
        return [job for job in jobs if job is not None]

    def _job(self, job_id: str, record: Any) -> Job | None:
        if isinstance(record, redis.ResponseError):
            return None
        if isinstance(record, Exception):
            raise QueueUnavailable(f"Redis does not answer ({record}).") from record
        try:
            return Job.from_record(job_id, record) if record else None
        except RecordUnreadable as error:
            log.warning("a job is left out of a list", job=job_id, reason=str(error))
            return None


def _microseconds(seconds: float) -> int:
    return round(seconds * 1_000_000)
