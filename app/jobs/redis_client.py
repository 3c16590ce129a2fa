"""Connects to Redis so that a restart is outlived, and never mistakes a blocking read for a dead server.

Its clients name what goes wrong: each command raises QueueUnavailable where the server is away or can do
nothing, and RedisRefuses where it lets this user do too little.
"""

import asyncio
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis
from redis.asyncio import BlockingConnectionPool
from redis.asyncio import Redis as AsyncRedis
from redis.asyncio.client import Pipeline as AsyncPipeline
from redis.backoff import ExponentialWithJitterBackoff
from redis.client import Pipeline
from redis.retry import Retry

from app.errors import QueueUnavailable, RedisMissing, RedisRefuses
from app.settings import Settings

#: Longest block of a read on the server. Every socket timeout stays well above it: redis-py's own default
#: of 5 s takes a busy machine for a dead one.
BLOCK_SECONDS = 1.0
SOCKET_TIMEOUT = 30.0
CONNECT_TIMEOUT = 5.0
CONNECTIONS = 256  #: one a thread that asks: more than an API has threads. redis-py's own limit is 100
CANCEL_SECONDS = 0.5  #: after which a task that still runs is cancelled once more


#: Errors of a server that answers and can do nothing at the moment, by their first word: its disk or its
#: memory is full, it follows another one, it reads its file.
UNABLE = ("MISCONF", "OOM", "READONLY", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "NOREPLICAS", "TRYAGAIN")
UNABLE_KINDS = (redis.exceptions.OutOfMemoryError, redis.ReadOnlyError, redis.exceptions.ClusterDownError)
#: Errors of a server that does not let this user in, or do enough: protected mode, a password, rights.
REFUSING = ("DENIED", "NOAUTH", "WRONGPASS", "NOPERM")
REFUSING_KINDS = (redis.AuthenticationError, redis.exceptions.NoPermissionError)


@contextmanager
def unavailable_if_away() -> Iterator[None]:
    """Turns redis-py's errors into QueueUnavailable, or RedisRefuses, where a server is away, cannot work, or
    lets this user do too little."""
    try:
        yield
    except REFUSING_KINDS as error:
        raise RedisRefuses(f"Redis refuses what it is asked ({error}).") from error
    except (redis.ConnectionError, redis.TimeoutError) as error:
        raise QueueUnavailable(f"Redis does not answer ({error}).") from error
    except redis.ResponseError as error:
        if isinstance(error, UNABLE_KINDS) or str(error).startswith(UNABLE):
            raise QueueUnavailable(f"Redis cannot do it now ({error}).") from error
        if str(error).startswith(REFUSING):
            raise RedisRefuses(f"Redis refuses what it is asked ({error}).") from error
        raise


class NamingPipeline(Pipeline):
    """Sends commands together, and names what goes wrong with all of them."""

    def execute(self, raise_on_error: bool = True) -> list[Any]:
        with unavailable_if_away():
            return super().execute(raise_on_error)


class NamingClient(redis.Redis):
    """Names what goes wrong with a command."""

    def execute_command(self, *args: Any, **options: Any) -> Any:
        with unavailable_if_away():
            return super().execute_command(*args, **options)  # type: ignore[no-untyped-call]

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> NamingPipeline:
        return NamingPipeline(self.connection_pool, self.response_callbacks, transaction, shard_hint)


class AsyncNamingPipeline(AsyncPipeline):
    """Does what NamingPipeline does, in an event loop."""

    async def execute(self, raise_on_error: bool = True) -> list[Any]:
        with unavailable_if_away():
            return await super().execute(raise_on_error)


class AsyncNamingClient(AsyncRedis):
    """Does what NamingClient does, in an event loop."""

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        with unavailable_if_away():
            return await super().execute_command(*args, **options)  # type: ignore[no-untyped-call]

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> AsyncNamingPipeline:
        return AsyncNamingPipeline(self.connection_pool, self.response_callbacks, transaction, shard_hint)


def connect(url: str, patience: float, answer_seconds: float | None = None) -> redis.Redis:
    """Makes a client that tries a command again for about ``patience`` seconds while the server is away.

    Every command of ours may be repeated: the scripts know a call that they have seen.

    Args:
        answer_seconds: longest silence of a server that is there. It is then not asked again: the request
            that waits for this client has been promised an answer. By default SOCKET_TIMEOUT, with retries.
    """
    longest_pause = 0.5
    pauses = ExponentialWithJitterBackoff(base=0.02, cap=longest_pause)
    tries = max(1, round(patience / longest_pause * 2))
    if answer_seconds is None:
        retry, timeout, connect_timeout, interval = Retry(pauses, tries), SOCKET_TIMEOUT, CONNECT_TIMEOUT, 30
    else:
        retry = Retry(pauses, tries, supported_errors=(redis.ConnectionError,))
        timeout, connect_timeout, interval = answer_seconds, answer_seconds, 0
    return NamingClient.from_url(
        url,
        max_connections=CONNECTIONS,
        decode_responses=True,
        encoding_errors="backslashreplace",  # a value that is not UTF-8 is that value's fault alone
        socket_timeout=timeout,
        socket_connect_timeout=connect_timeout,
        health_check_interval=interval,
        retry=retry,
    )


def connect_async(url: str, connections: int) -> AsyncRedis:
    """Makes a client for one event loop, whose commands share so many connections: who finds none free waits.

    Blocking reads may take as long as BLOCK_SECONDS.
    """
    pool = BlockingConnectionPool.from_url(
        url,
        max_connections=connections,
        timeout=SOCKET_TIMEOUT,
        decode_responses=True,
        encoding_errors="backslashreplace",
        socket_timeout=CONNECT_TIMEOUT,
        socket_connect_timeout=CONNECT_TIMEOUT,
    )
    return AsyncNamingClient.from_pool(pool)


async def end_tasks(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancels tasks that use Redis, and waits for their end.

    The client may turn a cancellation into an error of the connection that it met, so it is repeated.
    """
    waiting = set(tasks)
    while waiting:
        for task in waiting:
            task.cancel()
        _, waiting = await asyncio.wait(waiting, timeout=CANCEL_SECONDS)


class LuaScript:
    """Runs a script of ``app/jobs/lua`` by its digest, and by its text where the server does not know that.

    redis-py's own scripts load themselves again as well, but not when the server forgets them once more in
    between, and not inside a pipeline that is under way.
    """

    FOLDER = Path(__file__).parent / "lua"

    def __init__(self, server: redis.Redis, name: str) -> None:
        self._server = server
        self.text = self._text(name)
        self._digest = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()

    def __call__(self, keys: Sequence[str], args: Sequence[Any]) -> Any:
        """Runs the script and returns its reply. Raises what redis-py raises."""
        try:
            return self._server.evalsha(self._digest, len(keys), *keys, *args)
        except redis.exceptions.NoScriptError:
            return self._server.eval(self.text, len(keys), *keys, *args)

    def add_to(self, pipe: Pipeline, keys: Sequence[str], args: Sequence[Any], *, by_text: bool) -> None:
        """Adds a run of the script to a pipeline.

        Args:
            pipe: which cannot load a script that the server does not know.
            by_text: sends all of it, for such a server; else its digest, which is 15 KB shorter.
        """
        if by_text:
            pipe.eval(self.text, len(keys), *keys, *args)
        else:
            pipe.evalsha(self._digest, len(keys), *keys, *args)

    @classmethod
    def _text(cls, name: str) -> str:
        """Joins the script to what all have in common; its flags (``#!lua …``) have to be the first line."""
        common, script = ((cls.FOLDER / f"{each}.lua").read_text() for each in ("common", name))
        flags, line, rest = script.partition("\n") if script.startswith("#!") else ("", "", script)
        return flags + line + common + rest


def redis_url(settings: Settings) -> str:
    """Finds Redis: REDIS_URL, or the embedded server that runs in the data folder. Raises RedisMissing."""
    if settings.redis_url:
        return settings.redis_url
    try:
        return (settings.redis_folder / "url").read_text()
    except FileNotFoundError as error:
        raise RedisMissing(
            f"REDIS_URL is not set and no server runs in the data folder {settings.data}. "
            "Start make serve (in containers docker compose up), or set REELWORD_DATA to the folder that "
            "your server was started with."
        ) from error


def entry_number(entry: str) -> tuple[int, int]:
    """Reads the id of a stream's entry as numbers that can be compared."""
    milliseconds, _, number = entry.partition("-")
    return int(milliseconds), int(number)
