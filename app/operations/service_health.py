"""Finds what keeps the service from its work, and what may cost it later: for ``/readyz`` and ``doctor``.

    Redis      away, refusing, frozen, loading its file, a replica, full, evicting, unable to write
    workers    none, or none with loaded models

Redis's INFO is read first: a server that takes no writes answers that at once.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import redis

from app.errors import QueueUnavailable, RedisRefuses
from app.jobs.worker_registry import WorkerInfo, WorkerRegistry

MIB = 2**20


@dataclass(frozen=True)
class Trouble:
    """Describes one thing that is wrong."""

    code: str  #: stable name
    message: str  #: a sentence about what is wrong
    hint: str  #: what to do
    blocks: bool = True  #: no job can be taken or run while it lasts; else it is a warning
    detail: str = ""  #: addresses and errors, for logs and the operator's terminal

    @property
    def advice(self) -> str:
        """Writes all of it, as a command prints it."""
        detail = f" ({self.detail})" if self.detail else ""
        return f"{self.message.removesuffix('.')}{detail}. {self.hint}"


@dataclass(frozen=True)
class Health:
    """Holds what was found."""

    troubles: list[Trouble]
    workers: list[WorkerInfo]  #: those that live, none where Redis could not be asked

    @property
    def ready(self) -> int:
        """Counts the workers that could take a job now."""
        return sum(worker.is_ready for worker in self.workers)

    @property
    def blocking(self) -> list[Trouble]:
        return [trouble for trouble in self.troubles if trouble.blocks]

    @property
    def warnings(self) -> list[Trouble]:
        return [trouble for trouble in self.troubles if not trouble.blocks]


def examine_service(server: redis.Redis, registry: WorkerRegistry) -> Health:
    """Looks at Redis, as long as ``server`` waits for an answer, and at the workers; raises nothing."""
    try:
        info: Any = server.info()
    except QueueUnavailable as error:
        return Health([_unreachable(error.__cause__ or error)], [])
    except redis.RedisError as error:
        return Health([_unreachable(error)], [])
    troubles = list(find_redis_troubles(info))
    if info.get("loading"):  # it may have ended by now, and nothing was asked of it before
        return Health(troubles, [])
    try:
        workers = registry.workers()
    except RedisRefuses as error:
        return Health([*troubles, _refusing(error)], [])
    except QueueUnavailable as error:
        is_named = any(trouble.blocks for trouble in troubles)
        return Health(troubles if is_named else [*troubles, _unable(error)], [])
    except redis.RedisError as error:
        return Health([*troubles, _refusing(error)], [])
    return Health([*troubles, *_find_worker_troubles(workers)], workers)


def find_redis_troubles(info: Mapping[str, Any]) -> Iterator[Trouble]:
    """Yields what is wrong by INFO: its sections server, memory, persistence and replication."""
    if info.get("loading"):
        seconds = info.get("loading_eta_seconds", "some")
        yield Trouble(
            "redis_loading",
            f"Redis reads its file and answers nothing else for {seconds} seconds more.",
            "Wait; a file that grows for long is rewritten by BGREWRITEAOF.",
        )
        return
    if info.get("role") == "slave":
        yield Trouble(
            "redis_read_only",
            "Redis is a replica of another server and takes no writes.",
            "Have the service use the primary, or make this one it: REPLICAOF NO ONE.",
            detail=f"of {info.get('master_host')}:{info.get('master_port')}",
        )
    yield from _find_memory_troubles(info)
    yield from _find_disk_troubles(info)


def _find_memory_troubles(info: Mapping[str, Any]) -> Iterator[Trouble]:
    policy, limit = str(info.get("maxmemory_policy", "noeviction")), int(info.get("maxmemory") or 0)
    used = int(info.get("used_memory") or 0)
    is_deadly = policy.startswith("allkeys") and limit > 0
    if policy != "noeviction":
        yield Trouble(
            "redis_evicts",
            f"Redis deletes keys when its memory is full (maxmemory-policy {policy}): "
            + ("accepted jobs would be lost." if is_deadly else "what lapses by itself may go too early."),
            "CONFIG SET maxmemory-policy noeviction, and the same in its configuration file.",
            blocks=is_deadly,
        )
    elif 0 < limit <= used:
        yield Trouble(
            "redis_full",
            f"Redis's memory is full: {used / MIB:.0f} of {limit / MIB:.0f} MiB; it takes no more jobs.",
            "Raise maxmemory, or make room: reelword jobs purge --older-than 1d.",
        )


def _find_disk_troubles(info: Mapping[str, Any]) -> Iterator[Trouble]:
    """The append-only file is what accepted jobs are in; a snapshot is a second copy, or there is none."""
    if info.get("aof_enabled") and info.get("aof_last_write_status", "ok") != "ok":
        yield Trouble(
            "redis_disk_full",
            "Redis cannot write its append-only file and refuses writes: its disk is full or failing.",
            "Free some room on the disk below Redis; it goes on by itself.",
        )
    if not info.get("aof_enabled"):
        yield Trouble(
            "redis_not_durable",
            "Redis keeps no append-only file: accepted jobs are lost when it restarts.",
            "CONFIG SET appendonly yes, and the same in its configuration file.",
            blocks=False,
        )
    for member, what in (
        ("rdb_last_bgsave_status", "snapshot"),
        ("aof_last_bgrewrite_status", "shorter append-only file"),
    ):
        if info.get(member, "ok") != "ok":
            yield Trouble(
                "redis_save_failed",
                f"Redis could not write its last {what}.",
                "See Redis's log: usually its disk is full, or its memory cannot be copied (overcommit).",
                blocks=False,
            )


def _find_worker_troubles(workers: list[WorkerInfo]) -> Iterator[Trouble]:
    if not workers:
        yield Trouble(
            "no_worker",
            "Redis answers, but no worker has reported there.",
            "Wait some seconds for one that was just started, or start one with reelword worker; if one runs "
            "for longer, read its log and see that it uses this Redis.",
        )
    elif not any(worker.is_ready for worker in workers):
        yield Trouble(
            "workers_loading",
            f"Redis answers, but none of {len(workers)} workers has loaded its models.",
            "Wait; if it lasts, read the worker's log or run reelword doctor.",
        )


def _unreachable(error: BaseException) -> Trouble:
    if isinstance(error, redis.TimeoutError):
        return Trouble(
            "redis_frozen",
            "Redis takes connections and does not answer: it is paused, stopped or swapped out.",
            "A pause (CLIENT PAUSE) ends by itself; else see what its machine is busy with, or restart it.",
        )
    if isinstance(error, redis.ConnectionError) and not isinstance(error, redis.AuthenticationError):
        return Trouble(
            "redis_away",
            "Redis does not answer.",
            "See that Redis runs where the service looks for it.",
            detail=str(error),
        )
    return _refusing(error)


def _refusing(error: BaseException) -> Trouble:
    return Trouble(
        "redis_refuses",
        "Redis refuses what it is asked.",
        "Check the user and password that it is asked with, and that this user may run scripts on all keys.",
        detail=str(error),
    )


def _unable(error: QueueUnavailable) -> Trouble:
    """Returns what is wrong where INFO was answered and a script was not: writes wait, or are refused."""
    if isinstance(error.__cause__, redis.TimeoutError):
        return Trouble(
            "redis_paused",
            "Redis answers and lets no write through: it is paused, or a script runs for long.",
            "CLIENT UNPAUSE ends a pause, SCRIPT KILL a script.",
        )
    if str(error.__cause__).startswith("MISCONF"):
        return Trouble(
            "redis_disk_full",
            "Redis refuses writes because it cannot save: its disk is full or failing.",
            "Free some room on the disk below Redis; it goes on by itself.",
            detail=str(error.__cause__),
        )
    message = "Redis answers that it can do nothing now."
    return Trouble("redis_unable", message, "Wait; if it lasts, read Redis's log.", detail=str(error))
