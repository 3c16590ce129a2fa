"""Follows a job's events: which one came last, and when a stream that broke resumes."""

from __future__ import annotations

import json

import httpx
from httpx_sse import ServerSentEvent

from reelword.documents import Event
from reelword.errors import Unreachable, name_refusal
from reelword.retries import TryAgain


class Following:
    """Follows one job over as many connections as it takes; at most so many may break in a row."""

    def __init__(self, most_breaks: int, after: str | None) -> None:
        self._most, self._breaks, self._after = most_breaks, 0, after

    @property
    def headers(self) -> dict[str, str]:
        """Makes the headers of the next connection: it resumes after the last event."""
        return {} if self._after is None else {"Last-Event-ID": self._after}

    @property
    def pause(self) -> float:
        """Returns the seconds before the next connection is opened."""
        return float(min(0.2 * 2**self._breaks, 10.0))

    def take(self, sent: ServerSentEvent) -> Event:
        """Reads an event that was sent."""
        event = Event(kind=sent.event, id=sent.id or None, data=json.loads(sent.data or "{}"))
        self._breaks, self._after = 0, event.id or self._after
        return event

    def note_break(self, error: httpx.TransportError | TryAgain) -> None:
        """Counts a connection that broke. Raises Unreachable, or what the service refused, after too many."""
        self._breaks += 1
        if self._breaks < self._most:
            return
        if isinstance(error, TryAgain):
            raise name_refusal(error.response) from error
        raise Unreachable(f"The service's events broke off {self._breaks} times: {error!r}") from error
