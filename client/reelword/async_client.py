"""Sends videos to a Reelword service and brings their captions; the same as client.py, awaited."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self, Unpack

import httpx
from httpx_sse import aconnect_sse
from tenacity import AsyncRetrying

from reelword import calls, event_stream
from reelword.calls import Call, CaptionsKind, Options, Video
from reelword.documents import Attention, Batch, Event, Job, JobPage, JobSummary, Models
from reelword.errors import JobFailed, NotFinished, Refused, Unreachable
from reelword.retries import TryAgain, check, policy


class AsyncClient:
    """Speaks with one service. Safe to share between tasks; close it, or use it as a context.

    Args:
        base_url: the service's address.
        key: an API key, where the service asks for one (``reelword keys add`` makes one).
        attempts: how often a request is sent before Unreachable or Refused is raised; what is sent
            again makes no second job.
        timeout: seconds without a byte after which a try has failed.
        transport: httpx' own, for tests and proxies.

    All methods raise Refused where the service refuses, and Unreachable where it does not answer.
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
        """Sends a video and waits for its caption.

        Args:
            video: a path, an http(s) address, bytes or an open file.
            timeout: seconds to wait at most; None waits as long as it takes.
            options: of the job.

        Raises:
            JobFailed: the job ended without a caption.
            NotFinished: it was not over in time, and goes on.
        """
        job = await self.wait(await self.submit(video, **options), timeout=timeout)
        if job.state != "succeeded":
            raise JobFailed(job)
        return job

    async def submit(
        self, video: Video, *, idempotency_key: str | None = None, **options: Unpack[Options]
    ) -> Job:
        """Sends a video and returns its job, which waits or runs.

        Args:
            video: a path, an http(s) address, bytes or an open file.
            idempotency_key: names the request: sent again, it is the same job. Random by default.
            options: of the job.
        """
        return await self._job(await self._send(calls.submit(video, options, idempotency_key)))

    async def job(self, job: Job | str) -> Job:
        """Reads a job."""
        return await self._job(await self._send(calls.job(_id(job))))

    async def wait(self, job: Job | str, *, timeout: float | None = None) -> Job:
        """Waits until a job is over, failed or not; the service answers when it changes, so none is polled.

        Raises NotFinished after ``timeout`` seconds.
        """
        began = time.monotonic()
        current = await self.job(job) if isinstance(job, str) or job.etag is None else job
        while not current.is_over:
            left = event_stream.seconds_left(began, timeout)
            if left <= 0:
                raise NotFinished(current, timeout or 0.0)
            response = await self._send(calls.job(current.id, current.etag, min(left, calls.LONG_POLL)))
            current = current if response.status_code == 304 else await self._job(response)
            if current.etag is None:  # a service that holds no requests
                await asyncio.sleep(min(left, event_stream.POLL_SECONDS))
        return current

    async def events(self, job: Job | str, *, after: str | None = None) -> AsyncIterator[Event]:
        """Yields a job's events as they happen, to its end; goes on where a connection broke.

        Args:
            job: or its id.
            after: id of an event: those behind it.
        """
        call = calls.job_part(_id(job), "events")
        breaks = event_stream.Breaks(self._attempts)
        while True:
            headers = {} if after is None else {"Last-Event-ID": after}
            try:
                async with aconnect_sse(self._http, "GET", call.path, headers=headers) as source:
                    if source.response.is_error:
                        await source.response.aread()
                    _refuse(check(source.response))
                    async for sent in source.aiter_sse():
                        breaks.reset()
                        event = event_stream.read(sent)
                        after = event.id or after
                        yield event
                        if event.kind == "end":
                            return
            except (httpx.TransportError, TryAgain) as error:
                breaks.count(error)
            await asyncio.sleep(breaks.pause)

    async def recaption(
        self, job: Job | str, *, idempotency_key: str | None = None, **options: Unpack[Options]
    ) -> Job:
        """Captions the film of a job again, by another captioner or other options."""
        return await self._job(await self._send(calls.recaption(_id(job), options, idempotency_key)))

    async def cancel(self, job: Job | str) -> Job:
        """Cancels a job; deletes the result of one that is over."""
        return await self._job(await self._send(calls.cancel(_id(job))))

    async def jobs(self, **filters: Any) -> AsyncIterator[JobSummary]:
        """Yields jobs, newest first, a page at a time.

        filters: ``state``, ``captioner``, ``batch``, ``created_after``, ``created_before``, ``limit`` a page.
        """
        cursor: str | None = None
        while True:
            page = JobPage.model_validate((await self._send(calls.jobs(filters, cursor))).json())
            for job in page.jobs:
                yield job
            cursor = page.next
            if cursor is None:
                return

    async def batch(
        self, videos: Iterable[Video], *, idempotency_key: str | None = None, **options: Unpack[Options]
    ) -> Batch:
        """Sends many videos with the same options; all are accepted, or none."""
        return Batch.model_validate(
            (await self._send(calls.submit_batch(videos, options, idempotency_key))).json()
        )

    async def get_batch(self, batch: Batch | str) -> Batch:
        """Reads a batch."""
        return Batch.model_validate((await self._send(calls.batch(_id(batch)))).json())

    async def cancel_batch(self, batch: Batch | str) -> Batch:
        """Cancels those jobs of a batch that are not over."""
        return Batch.model_validate((await self._send(calls.cancel_batch(_id(batch)))).json())

    async def wait_batch(self, batch: Batch | str, *, timeout: float | None = None) -> AsyncIterator[Job]:
        """Waits until all jobs of a batch are over, then yields them. Raises TimeoutError."""
        began = time.monotonic()
        while not (current := await self.get_batch(batch)).is_over:
            left = event_stream.seconds_left(began, timeout)
            if left <= 0:
                raise TimeoutError(f"Batch {current.id} is not over after {timeout:g} seconds.")
            await asyncio.sleep(min(left, event_stream.POLL_SECONDS))
        async for job in self.batch_results(current):
            yield job

    async def batch_results(self, batch: Batch | str) -> AsyncIterator[Job]:
        """Yields the jobs of a batch that are over."""
        call = calls.batch_results(_id(batch))
        async with self._http.stream("GET", call.path) as response:
            if response.is_error:
                await response.aread()
            _refuse(response)
            async for line in response.aiter_lines():
                if line.strip():
                    yield Job.model_validate(json.loads(line))

    async def models(self) -> Models:
        """Lists the captioners that live workers have, and the options."""
        return Models.model_validate((await self._send(calls.models())).json())

    async def attention(self, job: Job | str) -> Attention:
        """Returns where the captioner looked for each word."""
        return Attention.model_validate((await self._send(calls.job_part(_id(job), "attention"))).json())

    async def attention_png(self, job: Job | str) -> bytes:
        """Draws the same as a picture."""
        return (await self._send(calls.job_part(_id(job), "attention.png"))).content

    async def captions(self, job: Job | str, kind: CaptionsKind = "vtt") -> str:
        """Writes the captions of a film's segments as WebVTT, SubRip, CSV or JSON."""
        return (await self._send(calls.job_part(_id(job), f"captions.{kind}"))).text

    async def _job(self, response: httpx.Response) -> Job:
        """Reads a job; an answer to an upload names it only, and is asked for."""
        document = response.json()
        if response.status_code == 202 and "progress" not in document:
            return await self.job(document["id"])
        return Job.model_validate({**document, "etag": response.headers.get("ETag")})

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
        return _refuse(response)


def _refuse(response: httpx.Response) -> httpx.Response:
    if response.is_error:
        raise Refused(response)
    return response


def _id(thing: Job | Batch | str) -> str:
    return thing if isinstance(thing, str) else thing.id
