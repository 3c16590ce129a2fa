"""Reads server-sent events, and decides how a reader resumes after its connection broke."""

from __future__ import annotations

import json
import math
import time

import httpx
from httpx_sse import ServerSentEvent

from reelword.documents import Event
from reelword.errors import Refused, Unreachable
from reelword.retries import TryAgain

POLL_SECONDS = 1.0  #: between two looks, where the service does not hold requests


def read(sent: ServerSentEvent) -> Event:
    """Makes an Event of what was sent."""
    return Event(kind=sent.event, id=sent.id or None, data=json.loads(sent.data or "{}"))


def seconds_left(began: float, timeout: float | None) -> float:
    """Counts what is left of ``timeout`` seconds since ``began`` (of time.monotonic); None has no end."""
    return math.inf if timeout is None else began + timeout - time.monotonic()


class Breaks:
    """Counts connections that broke in a row. pause: seconds before the next one is opened."""

    def __init__(self, most: int) -> None:
        self._most, self._count = most, 0

    @property
    def pause(self) -> float:
        return float(min(0.2 * 2**self._count, 10.0))

    def reset(self) -> None:
        self._count = 0

    def count(self, error: httpx.TransportError | TryAgain) -> None:
        """Notes one. Raises Unreachable, or Refused where the service refused last, after too many."""
        self._count += 1
        if self._count < self._most:
            return
        if isinstance(error, TryAgain):
            raise Refused(error.response) from error
        raise Unreachable(f"The service's events broke off {self._count} times: {error!r}") from error
