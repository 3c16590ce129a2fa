"""Takes waiting jobs from a Redis Streams consumer group, one stream a priority.

A message carries a job's id and its owner's lane. Two sources, in this order: entries whose worker fell
silent or handed them back (before anything new, so that a backlog delays no recovery), and what waits, by
priority and in each one of every lane by turns. Where there is nothing, a worker waits for the token that
comes with the next entry. Workers share: lua/take.lua says how many jobs one takes.
"""

import hashlib
import json
import os
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis

from app.jobs.job import GROUP, PRIORITIES, Keys, Priority
from app.jobs.redis_client import BLOCK_SECONDS, LuaScript

RECOVERY_INTERVAL = 0.5  #: seconds between looks for abandoned entries, by all workers together
NOT_YET = -1.0  #: when a worker has looked that has to look at once
NOBODY = "nobody"  #: the consumer that has what was handed back (lua/finish.lua)
FETCHED, FILM = "+url", "+film"  #: end lanes of what has to be fetched, and of films (lua/common.lua)
FORGOTTEN_AFTER_MS = 3600 * 1000  #: a consumer without entries that has been away this long is removed


@dataclass(frozen=True)
class Passed:
    """Holds what a worker leaves to others."""

    owners: Sequence[str] = ()  #: of whom it takes nothing that has to be fetched first
    are_whole: bool = False  #: nor anything else of them
    all_fetches: bool = False  #: of nobody it takes what has to be fetched first
    all_films: bool = False  #: nor a film that gave way

    @property
    def lanes(self) -> list[str]:
        """Names the lanes of these owners that nothing is taken of."""
        endings = ("", FETCHED, FILM) if self.are_whole else (FETCHED,)
        return [f"{owner}{ending}" for owner in self.owners for ending in endings]

    @property
    def endings(self) -> list[str]:
        """Lists how other such lanes end."""
        return [
            ending for ending, is_left in ((FETCHED, self.all_fetches), (FILM, self.all_films)) if is_left
        ]


ALL_LANES = Passed()


@dataclass(frozen=True)
class Offer:
    """Holds an entry read from a stream; the job's record decides whether it may be run."""

    job_id: str  #: empty where the entry names none
    entry: str  #: its id in the stream
    priority: Priority
    is_recovered: bool  #: another worker had it, and may have died of it
    fields: Mapping[str, str] = field(default_factory=dict, compare=False)  #: all that the entry has


@dataclass(eq=False)
class Queue:
    """Takes jobs for one worker."""

    server: redis.Redis  #: the connection to Redis
    worker: str  #: its name, the consumer's name on the server
    lease: float  #: seconds after which a job runs again whose worker fell silent
    attempts: int = 3  #: how many a job has
    keys: Keys = field(default_factory=Keys)  #: names in Redis

    def __post_init__(self) -> None:
        self._lease_ms = round(self.lease * 1000)
        self._looked_at = NOT_YET
        self._streams = [self.keys.stream(priority) for priority in PRIORITIES]
        self._take = LuaScript(self.server, "take")

    def open(self) -> None:
        """Makes the groups that are not there yet and removes consumers long gone.

        A worker that had this one's host and process id (a restarted container's has both) is dead.
        """
        ensure_groups(self.server, self.keys)
        release_dead_worker(self.server, self.worker.rpartition("-")[0], self.keys, living=self.worker)
        forget = LuaScript(self.server, "forget")
        for stream in self._streams:
            forget([stream, self.keys.clock, self.keys.dead], [GROUP, NOBODY, FORGOTTEN_AFTER_MS])

    def take(
        self, count: int, block: float = BLOCK_SECONDS, *, is_ahead: bool = False, without: Passed = ALL_LANES
    ) -> list[Offer]:
        """Takes ``count`` jobs at most, of each owner by turns; or none. Raises QueueUnavailable.

        Abandoned jobs come together, as many as idle workers share them, but one that has its last attempt
        before it comes alone.

        Args:
            block: seconds to wait where there is none; 0 does not wait.
            is_ahead: the worker is at work: it does not wait, gets nothing while another worker is idle or an
                abandoned job has its last attempt before it, and else what is left of its share.
            without: what is left to others.
        """
        until = time.monotonic() + block
        try:
            while not (taken := self._share(count, is_ahead, without)):
                left = until - time.monotonic()
                if is_ahead or left <= 0 or not self.server.blpop([self.keys.wake], left):
                    break
        except redis.ResponseError as error:
            if not any(kind in str(error) for kind in ("NOGROUP", "WRONGTYPE", "no such key")):
                raise
            ensure_groups(self.server, self.keys)  # the server was emptied, or has something else there
            return []
        return taken

    def _share(self, count: int, is_ahead: bool, without: Passed) -> list[Offer]:
        # 2 looks for abandoned jobs now, 1 unless another worker has just done so
        is_due = time.monotonic() - self._looked_at >= RECOVERY_INTERVAL
        looks = 2 if self._looked_at <= NOT_YET else int(is_due)
        keys = [*self._streams, self.keys.workers, self.keys.clock, self.keys.dead]
        limits = [count, self._lease_ms, self.attempts]
        interval = round(RECOVERY_INTERVAL * 1000)
        lanes = [json.dumps(without.lanes), json.dumps(without.endings)]
        reply: Any = self._take(
            keys, [GROUP, self.worker, *limits, self.keys.job(""), interval, looks, int(is_ahead), *lanes]
        )
        offers = [
            Offer(fields.get("job", ""), entry, PRIORITIES[number - 1], bool(is_recovered), fields)
            for number, entry, is_recovered, flat in reply
            for fields in [dict(zip(flat[::2], flat[1::2], strict=True))]
        ]
        if any(offer.is_recovered for offer in offers):
            self._looked_at = NOT_YET  # there may be more
        elif looks:
            self._looked_at = time.monotonic()
        return offers

    def close(self) -> None:
        """Takes this consumer off the server, unless entries are still its own."""
        leave = LuaScript(self.server, "leave")
        leave([*self._streams, self.keys.clock, self.keys.dead], [GROUP, self.worker])


def worker_prefix(pid: int) -> str:
    """Makes what the name of a worker of this host begins with, by its process id.

    Two containers may have one host name, and their workers one process id. The kernel's boot and the
    container's own list of processes tell them apart; both are as before where a worker alone is restarted.
    """
    return f"{socket.gethostname()}-{_process_space()}-{pid}"


def _process_space() -> str:
    """Returns eight hex digits of where process ids are this host's alone; zeros where Linux has none."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
        return hashlib.sha256(f"{boot}{os.readlink('/proc/self/ns/pid')}".encode()).hexdigest()[:8]
    except OSError:
        return "00000000"


def release_dead_worker(server: redis.Redis, name: str, keys: Keys, living: str = "") -> int:
    """Ends the leases of a worker known to be dead, so that its jobs run again; returns how many it had.

    Args:
        name: its name as far as host and process id.
        living: a worker of the same name so far, which keeps its own.

    Raises QueueUnavailable.
    """
    script = LuaScript(server, "release")
    streams = [keys.stream(priority) for priority in PRIORITIES]
    arguments = [GROUP, f"{name}-", living, keys.job(""), keys.worker("")]
    return int(script([*streams, keys.workers, keys.clock, keys.dead], arguments))


def ensure_groups(server: redis.Redis, keys: Keys) -> None:
    """Makes the streams' groups, from the start; a key that holds something else is renamed."""
    for priority in PRIORITIES:
        try:
            if server.type(keys.stream(priority)) not in ("stream", "none"):
                server.rename(keys.stream(priority), f"{keys.stream(priority)}:unreadable")
            server.xgroup_create(keys.stream(priority), GROUP, id="0", mkstream=True)
        except redis.ResponseError as error:
            if not any(kind in str(error) for kind in ("BUSYGROUP", "no such key")):
                raise


def waiting(server: redis.Redis, keys: Keys) -> int:
    """Counts the jobs that no worker has: new ones and those handed back. Raises QueueUnavailable."""
    total = 0
    for priority in PRIORITIES:
        stream = keys.stream(priority)
        if server.type(stream) == "stream":
            total += int(server.xlen(stream)) - read_group(server, stream)[1]
    return max(total, 0)


def read_group(server: redis.Redis, stream: str) -> tuple[str | None, int]:
    """Finds the last entry that any worker was given, and how many some worker was given and did not hand
    back, however many workers there are; None and 0 without a group.
    """
    groups: Any = server.xinfo_groups(stream)
    group = next((each for each in groups if each["name"] == GROUP), None)
    if group is None:
        return None, 0
    pending = int(group["pending"])
    handed_back: Any = server.xpending_range(stream, GROUP, "-", "+", pending, NOBODY) if pending else []
    return str(group["last-delivered-id"]), pending - len(handed_back)
