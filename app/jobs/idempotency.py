"""Remembers which job an idempotency key stands for, so that a request may be repeated.

A key is reserved while its first request comes in, and the script that makes the job makes the key stand for
it in the same step (lua/submit.lua). A reservation lapses soon where it is not renewed: a process that
dies in the middle blocks the key for seconds.
"""

import hashlib
import json
import uuid
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import redis

from app.errors import QueueUnavailable
from app.jobs.job import Keys
from app.jobs.redis_client import LuaScript

RESERVED_SECONDS = 30.0  #: longer than a client may be silent while it sends
RENEW_SECONDS = 5.0
LONGEST_QUEUE = 7 * 86400  #: seconds that a job may wait and its key still last as long as its result


class KeyTaken(Exception):
    """Another request has made something of the key meanwhile."""


@dataclass(frozen=True)
class Reservation:
    """Holds a key for one request."""

    key: str
    token: str
    fingerprint: str = ""  #: of what it asks for, once that is known


@dataclass(frozen=True)
class KeptAnswer:
    """Names what a key stands for, and the fingerprint of the request that made it."""

    id: str
    fingerprint: str


class IdempotencyKeys:
    """Reserves and frees keys. Raises QueueUnavailable."""

    def __init__(self, server: redis.Redis, keys: Keys) -> None:
        self._keys = keys
        self._reserve, self._unreserve = LuaScript(server, "reserve"), LuaScript(server, "unreserve")

    def reserve(self, text: str, owner: str | None) -> Reservation | KeptAnswer | None:
        """Reserves a key as its owner sent it; those of others may have the same text.

        Returns the reservation, what the key stands for already, or None while another request has it.
        """
        digest = hashlib.sha256(json.dumps([owner, text]).encode()).hexdigest()
        reservation = Reservation(self._keys.idempotency(digest), uuid.uuid4().hex)
        reply = self._ask(reservation)
        if reply[0] == "kept":
            return KeptAnswer(reply[1], reply[2])
        return reservation if reply[0] == "reserved" else None

    def renew(self, reservation: Reservation) -> None:
        """Keeps a key reserved. Where Redis is away, the script that makes the job finds whose it is."""
        with suppress(QueueUnavailable):
            self._ask(reservation)

    def release(self, reservation: Reservation) -> None:
        """Frees a key of which nothing was made."""
        self._unreserve([reservation.key, self._keys.clock, self._keys.dead], [reservation.token])

    def _ask(self, reservation: Reservation) -> list[str]:
        arguments = [reservation.token, round(RESERVED_SECONDS * 1000)]
        reply: Any = self._reserve([reservation.key, self._keys.clock, self._keys.dead], arguments)
        return list(reply)


def fingerprint_of(asked: Any) -> str:
    """Makes a digest of what a request asks for: anything that JSON can hold."""
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()
