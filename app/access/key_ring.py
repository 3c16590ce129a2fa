"""Finds the key that a request was sent with, without asking Redis each time.

All keys are read together, every few seconds at most: a revoked one opens nothing soon after. A token whose
id is not among them has them read again at once, so that a new key works from its first request on. While
Redis is away the keys that were read last stay good: their jobs cannot be reached anyway.
"""

import asyncio
import math
import time
from collections.abc import Mapping

import anyio
import anyio.to_thread
import structlog

from app.access.keys import ApiKey, KeyStore, read_token
from app.errors import QueueUnavailable

FRESH_SECONDS = 3.0  #: in which what was read of keys and sessions is not read again
#: The same where a token is of no key that is known, who waits for it: all who guess cost Redis ten reads a
#: second together.
UNKNOWN_SECONDS = 0.1
NEVER = -math.inf
MOST_SESSIONS = 1000  #: remembered; more, and they are asked for again

log = structlog.get_logger(__name__)


class KeyRing:
    """Finds keys by tokens and by the cookies of pages. For one event loop."""

    def __init__(self, store: KeyStore) -> None:
        self.store = store
        self._lock = asyncio.Lock()
        self._keys: Mapping[str, ApiKey] = {}
        self._read_at = NEVER
        self._sessions: dict[str, tuple[str | None, float]] = {}

    async def find(self, token: str) -> ApiKey | None:
        """Finds the key that a token proves, None where it proves none. Raises QueueUnavailable."""
        parts = read_token(token)
        if parts is None:
            return None
        key_id, secret = parts
        key = await self.by_id(key_id)
        return key if key is not None and key.is_proved_by(secret) else None

    async def find_by_session(self, cookie: str) -> ApiKey | None:
        """Finds the key that a page was signed in by. Raises QueueUnavailable."""
        key_id, read_at = self._sessions.get(cookie, (None, NEVER))
        if time.monotonic() - read_at > FRESH_SECONDS:
            key_id = await anyio.to_thread.run_sync(self.store.key_of_session, cookie)
            if len(self._sessions) >= MOST_SESSIONS:
                self._sessions.clear()
            self._sessions[cookie] = key_id, time.monotonic()
        return None if key_id is None else await self.by_id(key_id)

    async def close_session(self, cookie: str) -> None:
        self._sessions.pop(cookie, None)
        await anyio.to_thread.run_sync(self.store.close_session, cookie)

    async def count(self) -> int:
        """Counts the keys that there are. Raises QueueUnavailable."""
        await self._read_since(time.monotonic() - FRESH_SECONDS)
        return len(self._keys)

    async def by_id(self, key_id: str) -> ApiKey | None:
        """Finds a key; None where it is unknown, revoked or expired. Raises QueueUnavailable."""
        asked_at = time.monotonic()
        await self._read_since(asked_at - FRESH_SECONDS)
        if key_id not in self._keys:  # made since, perhaps
            await anyio.sleep(max(0.0, self._read_at + UNKNOWN_SECONDS - time.monotonic()))
            await self._read_since(asked_at)
        key = self._keys.get(key_id)
        return None if key is None or key.is_expired(time.time()) else key

    async def _read_since(self, moment: float) -> None:
        """Reads all keys, unless that was begun at or after the moment; one reads for all who wait."""
        if self._read_at >= moment:
            return
        async with self._lock:
            if self._read_at >= moment:
                return
            began = time.monotonic()
            try:
                self._keys = await anyio.to_thread.run_sync(self.store.all)
            except QueueUnavailable as error:
                if self._read_at == NEVER:
                    raise
                log.warning("keys are those of a while ago: redis is away", reason=str(error))
            self._read_at = began
