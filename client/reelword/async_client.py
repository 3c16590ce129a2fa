"""Sends videos to a Reelword service and brings their captions; the same as client.py, awaited."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

import httpx
from httpx_sse import aconnect_sse
from tenacity import AsyncRetrying

from reelword import calls, event_stream, exchanges
from reelword.calls import Call, CaptionsKind, Options, Video
from reelword.documents import Attention, Batch, Event, FoundMoment, FoundMoments, Job, JobSummary, Models
from reelword.errors import Unreachable
from reelword.exchanges import Exchange, Pause, id_of, read, read_job, send
from reelword.retries import TryAgain, check, policy, refuse

Value = TypeVar("Value")


class AsyncClient:
    """Speaks with one service, as Client does, awaited. Safe to share between tasks.

    Close it, or use it as a context. What it is made with, and what its methods take and raise, is as Client
    has it, but for the transport, which is httpx' asynchronous one.
    """

    def __init__(
        self,
        base_url: str = "http://127.0.0.1:8000",
        *,
        key: str | None = None,
        attempts: int = 5,
        timeout: float = 60.0,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._http = httpx.AsyncClient(
            base_url=base_url, headers=headers, timeout=timeout, transport=transport
        )
        self._attempts = attempts

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self._http.aclose()

    async def caption(self, video: Video, *, timeout: float | None = None, **options: Unpack[Options]) -> Job:
        """Sends a video and waits for its caption, as Client.caption does."""
        return await self._run(exchanges.caption(video, options, timeout))

    async def submit(
        self, video: Video, *, idempotency_key: str | None = None, **options: Unpack[Options]
    ) -> Job:
        """Sends a video and returns its job, which waits or runs, as Client.submit does."""
        return await self._run(read_job(calls.submit(video, options, idempotency_key)))

    async def job(self, job: Job | str) -> Job:
        """Reads a job."""
        return await self._run(read_job(calls.job(id_of(job))))

    async def wait(self, job: Job | str, *, timeout: float | None = None) -> Job:
        """Waits until a job is over, failed or not. Raises NotFinished after ``timeout`` seconds."""
        return await self._run(exchanges.wait(job, timeout))

    async def events(self, job: Job | str, *, after: str | None = None) -> AsyncIterator[Event]:
        """Yields a job's events as they happen, to its end; resumes where a connection broke."""
        following = event_stream.Following(self._attempts, after)
        path = calls.job_part(id_of(job), "events").path
        while True:
            try:
                async with aconnect_sse(self._http, "GET", path, headers=following.headers) as source:
                    if source.response.is_error:
                        await source.response.aread()
                    refuse(check(source.response))
                    async for sent in source.aiter_sse():
                        event = following.take(sent)
                        yield event
                        if event.kind == "end":
                            return
            except (httpx.TransportError, TryAgain) as error:
                following.note_break(error)
            await asyncio.sleep(following.pause)

    async def recaption(
        self, job: Job | str, *, idempotency_key: str | None = None, **options: Unpack[Options]
    ) -> Job:
        """Captions the film of a job again, by another captioner or other options."""
        return await self._run(read_job(calls.recaption(id_of(job), options, idempotency_key)))

    async def cancel(self, job: Job | str) -> Job:
        """Cancels a job; deletes the result of one that is over."""
        return await self._run(read_job(calls.cancel(id_of(job))))

    async def jobs(self, **filters: Any) -> AsyncIterator[JobSummary]:
        """Yields jobs, newest first, a page at a time; filters are as Client has them."""
        cursor: str | None = None
        while True:
            page = await self._run(exchanges.page_of_jobs(filters, cursor))
            for job in page.jobs:
                yield job
            if (cursor := page.next) is None:
                return

    async def search(self, words: str, limit: int = 12) -> list[FoundMoment]:
        """Finds the moments of jobs that fit some words best, the best first."""
        return (await self._run(read(FoundMoments, calls.search(words, limit)))).moments

    async def batch(
        self, videos: Iterable[Video], *, idempotency_key: str | None = None, **options: Unpack[Options]
    ) -> Batch:
        """Sends many videos with the same options; all are accepted, or none."""
        return await self._run(exchanges.submit_batch(videos, options, idempotency_key))

    async def get_batch(self, batch: Batch | str) -> Batch:
        """Reads a batch."""
        return await self._run(read(Batch, calls.batch(id_of(batch))))

    async def cancel_batch(self, batch: Batch | str) -> Batch:
        """Cancels those jobs of a batch that are not over."""
        return await self._run(read(Batch, calls.cancel_batch(id_of(batch))))

    async def wait_batch(self, batch: Batch | str, *, timeout: float | None = None) -> AsyncIterator[Job]:
        """Waits until all jobs of a batch are over, then yields them. Raises TimeoutError."""
        async for job in self.batch_results(await self._run(exchanges.wait_batch(batch, timeout))):
            yield job

    async def batch_results(self, batch: Batch | str) -> AsyncIterator[Job]:
        """Yields the jobs of a batch that are over."""
        async with self._http.stream("GET", calls.batch_results(id_of(batch)).path) as response:
            if response.is_error:
                await response.aread()
            refuse(response)
            async for line in response.aiter_lines():
                if line.strip():
                    yield Job.model_validate(json.loads(line))

    async def models(self) -> Models:
        """Lists the captioners that live workers have, and the options."""
        return await self._run(read(Models, calls.models()))

    async def attention(self, job: Job | str) -> Attention:
        """Returns where the captioner looked for each word."""
        return await self._run(read(Attention, calls.job_part(id_of(job), "attention")))

    async def attention_png(self, job: Job | str) -> bytes:
        """Draws the same as a picture."""
        return (await self._run(send(calls.job_part(id_of(job), "attention.png")))).content

    async def captions(self, job: Job | str, kind: CaptionsKind = "vtt") -> str:
        """Writes the captions of a film's segments as WebVTT, SubRip, CSV or JSON."""
        return (await self._run(send(calls.job_part(id_of(job), f"captions.{kind}")))).text

    async def _run(self, exchange: Exchange[Value]) -> Value:
        """Sends what an exchange yields, and returns what it comes to."""
        answer: httpx.Response | None = None
        while True:
            try:
                step = exchange.send(answer)
            except StopIteration as end:
                value: Value = end.value
                return value
            if isinstance(step, Pause):
                await asyncio.sleep(step.seconds)
                answer = None
            else:
                answer = await self._send(step)

    async def _send(self, call: Call) -> httpx.Response:
        attempts = self._attempts if call.is_repeatable else 1
        try:
            async for attempt in AsyncRetrying(**policy(attempts)):  # type: ignore[arg-type]
                with attempt, ExitStack() as stack:
                    response = check(await self._http.request(**call.arguments(stack)))
        except TryAgain as refusal:
            response = refusal.response
        except httpx.TransportError as error:
            raise Unreachable(f"{self._http.base_url} does not answer: {error!r}") from error
        return refuse(response)
