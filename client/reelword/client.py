"""Sends videos to a Reelword service and brings their captions; blocks until there is an answer."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

import httpx
from httpx_sse import connect_sse
from tenacity import Retrying

from reelword import calls, event_stream, exchanges
from reelword.calls import Call, CaptionsKind, Options, Video
from reelword.documents import Attention, Batch, Event, FoundMoment, FoundMoments, Job, JobSummary, Models
from reelword.errors import Unreachable
from reelword.exchanges import Exchange, Pause, id_of, read, read_job, send
from reelword.retries import TryAgain, check, policy, refuse

Value = TypeVar("Value")


class Client:
    """Speaks with one service. Safe to share between threads; close it, or use it as a context.

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
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._http = httpx.Client(base_url=base_url, headers=headers, timeout=timeout, transport=transport)
        self._attempts = attempts

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def caption(self, video: Video, *, timeout: float | None = None, **options: Unpack[Options]) -> Job:
        """Sends a video and waits for its caption.

        Args:
            video: a path, an http(s) address, bytes or an open file.
            timeout: seconds to wait at most; None waits as long as it takes.
            options: of the job.

        Raises:
            JobFailed: the job ended without a caption.
            NotFinished: it was not over in time, and continues.
        """
        return self._run(exchanges.caption(video, options, timeout))

    def submit(self, video: Video, *, idempotency_key: str | None = None, **options: Unpack[Options]) -> Job:
        """Sends a video and returns its job, which waits or runs.

        Args:
            video: a path, an http(s) address, bytes or an open file.
            idempotency_key: names the request: sent again, it is the same job. Random by default.
            options: of the job.
        """
        return self._run(read_job(calls.submit(video, options, idempotency_key)))

    def job(self, job: Job | str) -> Job:
        """Reads a job."""
        return self._run(read_job(calls.job(id_of(job))))

    def wait(self, job: Job | str, *, timeout: float | None = None) -> Job:
        """Waits until a job is over, failed or not; the service answers when it changes, so none is polled.

        Raises NotFinished after ``timeout`` seconds.
        """
        return self._run(exchanges.wait(job, timeout))

    def events(self, job: Job | str, *, after: str | None = None) -> Iterator[Event]:
        """Yields a job's events as they happen, to its end; resumes where a connection broke.

        Args:
            job: or its id.
            after: id of an event: those after it.
        """
        following = event_stream.Following(self._attempts, after)
        path = calls.job_part(id_of(job), "events").path
        while True:
            try:
                with connect_sse(self._http, "GET", path, headers=following.headers) as source:
                    if source.response.is_error:
                        source.response.read()
                    refuse(check(source.response))
                    for sent in source.iter_sse():
                        event = following.take(sent)
                        yield event
                        if event.kind == "end":
                            return
            except (httpx.TransportError, TryAgain) as error:
                following.note_break(error)
            time.sleep(following.pause)

    def recaption(
        self, job: Job | str, *, idempotency_key: str | None = None, **options: Unpack[Options]
    ) -> Job:
        """Captions the film of a job again, by another captioner or other options."""
        return self._run(read_job(calls.recaption(id_of(job), options, idempotency_key)))

    def cancel(self, job: Job | str) -> Job:
        """Cancels a job; deletes the result of one that is over."""
        return self._run(read_job(calls.cancel(id_of(job))))

    def jobs(self, **filters: Any) -> Iterator[JobSummary]:
        """Yields jobs, newest first, a page at a time.

        filters: ``state``, ``captioner``, ``batch``, ``created_after``, ``created_before``, ``limit`` a page.
        """
        cursor: str | None = None
        while True:
            page = self._run(exchanges.page_of_jobs(filters, cursor))
            yield from page.jobs
            if (cursor := page.next) is None:
                return

    def search(self, words: str, limit: int = 12) -> list[FoundMoment]:
        """Finds the moments of jobs that fit some words best, the best first."""
        return self._run(read(FoundMoments, calls.search(words, limit))).moments

    def batch(
        self, videos: Iterable[Video], *, idempotency_key: str | None = None, **options: Unpack[Options]
    ) -> Batch:
        """Sends many videos with the same options; all are accepted, or none."""
        return self._run(exchanges.submit_batch(videos, options, idempotency_key))

    def get_batch(self, batch: Batch | str) -> Batch:
        """Reads a batch."""
        return self._run(read(Batch, calls.batch(id_of(batch))))

    def cancel_batch(self, batch: Batch | str) -> Batch:
        """Cancels those jobs of a batch that are not over."""
        return self._run(read(Batch, calls.cancel_batch(id_of(batch))))

    def wait_batch(self, batch: Batch | str, *, timeout: float | None = None) -> Iterator[Job]:
        """Waits until all jobs of a batch are over, then yields them. Raises TimeoutError."""
        yield from self.batch_results(self._run(exchanges.wait_batch(batch, timeout)))

    def batch_results(self, batch: Batch | str) -> Iterator[Job]:
        """Yields the jobs of a batch that are over."""
        with self._http.stream("GET", calls.batch_results(id_of(batch)).path) as response:
            if response.is_error:
                response.read()
            refuse(response)
            for line in response.iter_lines():
                if line.strip():
                    yield Job.model_validate(json.loads(line))

    def models(self) -> Models:
        """Lists the captioners that live workers have, and the options."""
        return self._run(read(Models, calls.models()))

    def attention(self, job: Job | str) -> Attention:
        """Returns where the captioner looked for each word."""
        return self._run(read(Attention, calls.job_part(id_of(job), "attention")))

    def attention_png(self, job: Job | str) -> bytes:
        """Draws the same as a picture."""
        return self._run(send(calls.job_part(id_of(job), "attention.png"))).content

    def captions(self, job: Job | str, kind: CaptionsKind = "vtt") -> str:
        """Writes the captions of a film's segments as WebVTT, SubRip, CSV or JSON."""
        return self._run(send(calls.job_part(id_of(job), f"captions.{kind}"))).text

    def _run(self, exchange: Exchange[Value]) -> Value:
        """Sends what an exchange yields, and returns what it comes to."""
        answer: httpx.Response | None = None
        while True:
            try:
                step = exchange.send(answer)
            except StopIteration as end:
                value: Value = end.value
                return value
            if isinstance(step, Pause):
                time.sleep(step.seconds)
                answer = None
            else:
                answer = self._send(step)

    def _send(self, call: Call) -> httpx.Response:
        attempts = self._attempts if call.is_repeatable else 1
        try:
            for attempt in Retrying(**policy(attempts)):  # type: ignore[arg-type]
                with attempt, ExitStack() as stack:
                    response = check(self._http.request(**call.arguments(stack)))
        except TryAgain as refusal:
            response = refusal.response
        except httpx.TransportError as error:
            raise Unreachable(f"{self._http.base_url} does not answer: {error!r}") from error
        return refuse(response)
