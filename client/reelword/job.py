"""Made of async_job.py by make_blocking.py; do not edit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Self, Unpack

from pydantic import PrivateAttr

from reelword.calls import CaptionsKind, ClipKind, Options, Verdict
from reelword.documents import Attention, Event, JobDocument, Word
from reelword.exchanges import Progress

if TYPE_CHECKING:
    from reelword.client import Client


class Job(JobDocument):
    """Holds a job as it was when it was read; ``wait`` and ``refresh`` return it anew."""

    _client: Client = PrivateAttr()

    @classmethod
    def of(cls, document: JobDocument, client: Client) -> Self:
        """Makes it of what the service answered."""
        job = cls.model_validate({**document.model_dump(), "etag": document.etag})
        job._client = client
        return job

    def refresh(self) -> Job:
        """Reads it again."""
        return self._client.job(self)

    def wait(self, *, timeout: float | None = None, progress: Progress | None = None) -> Job:
        """Waits until it is over, as ``wait`` of the client does."""
        return self._client.wait(self, timeout=timeout, progress=progress)

    def recaption(self, **options: Unpack[Options]) -> Job:
        """Captions its film again, by another captioner or other options."""
        return self._client.recaption(self, **options)

    def cancel(self) -> Job:
        """Cancels it; deletes the result of one that is over."""
        return self._client.cancel(self)

    @property
    def words(self) -> list[Word]:
        """Reads each word of its caption with the moment and place that it comes from."""
        return (self._client.attention(self)).by_word

    def attention(self) -> Attention:
        """Reads the same with all weights."""
        return self._client.attention(self)

    def captions_file(self, kind: CaptionsKind = "vtt") -> str:
        """Writes the captions of its segments as a file."""
        return self._client.captions(self, kind)

    def frame(self, number: int) -> bytes:
        """Reads a frame that the captioner saw, counted from 0 in the order of ``sampled``, as a JPEG."""
        return self._client.frame(self, number)

    def clip(self, kind: ClipKind = "mp4") -> bytes:
        """Makes a short clip with each word's place lit."""
        return self._client.clip(self, kind)

    def judge(self, verdict: Verdict, correction: str | None = None) -> None:
        """Says whether its caption is right."""
        self._client.judge(self, verdict, correction)

    def events(self) -> Iterator[Event]:
        """Yields its events as they happen, to its end."""
        yield from self._client.events(self)
