"""A connection that outlives a restart of Redis, and never mistakes a blocking read for a dead server."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis
from redis.backoff import ExponentialWithJitterBackoff
from redis.retry import Retry

from app.errors import QueueUnavailable

#: Longest block of a read on the server. Every socket timeout stays well above it: redis-py's own default
#: of 5 s takes a busy machine for a dead one.
BLOCK_SECONDS = 1.0
SOCKET_TIMEOUT = 30.0
CONNECT_TIMEOUT = 5.0


def connect(url: str, patience: float) -> redis.Redis:
    """A client that tries a command again for about ``patience`` seconds while the server is away.

    Every command of ours may be repeated: the scripts know a call that they have seen.
    """
    longest_pause = 0.5
    pauses = ExponentialWithJitterBackoff(base=0.02, cap=longest_pause)
    return redis.Redis.from_url(
        url,
        decode_responses=True,
        encoding_errors="backslashreplace",  # a value that is not UTF-8 is that value's fault alone
        socket_timeout=SOCKET_TIMEOUT,
        socket_connect_timeout=CONNECT_TIMEOUT,
        health_check_interval=30,
        retry=Retry(pauses, max(1, round(patience / longest_pause * 2))),
    )


@contextmanager
def unavailable_if_away() -> Iterator[None]:
    """Turns redis-py's connection errors into QueueUnavailable."""
    try:
        yield
    except (redis.ConnectionError, redis.TimeoutError) as error:
        raise QueueUnavailable(f"Redis does not answer ({error}).") from error


class LuaScript:
    """Runs a script of ``app/lua`` by its digest, and by its text where the server does not know that.

    redis-py's own scripts load themselves again as well, but not when the server forgets them once more in
    between, and not inside a pipeline that is under way.
    """

    FOLDER = Path(__file__).parent / "lua"

    def __init__(self, server: redis.Redis, name: str) -> None:
        self._server = server
        self.text = (self.FOLDER / "common.lua").read_text() + (self.FOLDER / f"{name}.lua").read_text()
        self._digest = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()

    def __call__(self, keys: Sequence[str], args: Sequence[Any]) -> Any:
        """The script's reply. Raises what redis-py raises."""
        try:
            return self._server.evalsha(self._digest, len(keys), *keys, *args)
        except redis.exceptions.NoScriptError:
            return self._server.eval(self.text, len(keys), *keys, *args)
