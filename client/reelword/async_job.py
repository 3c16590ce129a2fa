"""Holds a job with what may be asked about it, of the client that it came from."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Self, Unpack

from pydantic import PrivateAttr

from reelword.calls import CaptionsKind, ClipKind, Options, Verdict
from reelword.documents import Attention, Event, JobDocument, Word
from reelword.exchanges import Progress

if TYPE_CHECKING:
    from reelword.async_client import AsyncClient


class AsyncJob(JobDocument):
    """Holds a job as it was when it was read; ``wait`` and ``refresh`` return it anew."""

    _client: AsyncClient = PrivateAttr()

    @classmethod
    def of(cls, document: JobDocument, client: AsyncClient) -> Self:
        """Makes it of what the service answered."""
        job = cls.model_validate({**document.model_dump(), "etag": document.etag})
        job._client = client
        return job

    async def refresh(self) -> AsyncJob:
        """Reads it again."""
        return await self._client.job(self)

    async def wait(self, *, timeout: float | None = None, progress: Progress | None = None) -> AsyncJob:
        """Waits until it is over, as ``wait`` of the client does."""
        return await self._client.wait(self, timeout=timeout, progress=progress)

    async def recaption(self, **options: Unpack[Options]) -> AsyncJob:
        """Captions its film again, by another captioner or other options."""
        return await self._client.recaption(self, **options)

    async def cancel(self) -> AsyncJob:
        """Cancels it; deletes the result of one that is over."""
        return await self._client.cancel(self)

    @property
    async def words(self) -> list[Word]:
        """Reads each word of its caption with the moment and place that it comes from."""
        return (await self._client.attention(self)).by_word

    async def attention(self) -> Attention:
        """Reads the same with all weights."""
        return await self._client.attention(self)

    async def captions_file(self, kind: CaptionsKind = "vtt") -> str:
        """Writes the captions of its segments as a file."""
        return await self._client.captions(self, kind)

    async def frame(self, number: int) -> bytes:
        """Reads a frame that the captioner saw, counted from 0 in the order of ``sampled``, as a JPEG."""
        return await self._client.frame(self, number)

    async def clip(self, kind: ClipKind = "mp4") -> bytes:
        """Makes a short clip with each word's place lit."""
        return await self._client.clip(self, kind)

    async def judge(self, verdict: Verdict, correction: str | None = None) -> None:
        """Says whether its caption is right."""
        await self._client.judge(self, verdict, correction)

    async def events(self) -> AsyncIterator[Event]:
        """Yields its events as they happen, to its end."""
        async for event in self._client.events(self):
            yield event
