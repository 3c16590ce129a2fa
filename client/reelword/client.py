"""Made of async_client.py by make_blocking.py; do not edit."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Self, TypeVar, Unpack

import httpx
from httpx_sse import connect_sse
from tenacity import Retrying

from reelword import calls, event_stream, exchanges
from reelword.calls import Call, CaptionsKind, ClipKind, Filters, Options, Verdict, Video
from reelword.documents import (
    Access,
    Attention,
    Batch,
    Deliveries,
    Delivery,
    Event,
    FoundMoment,
    FoundMoments,
    JobDocument,
    JobSummary,
    KeptVerdict,
    Models,
    TestedWebhook,
)
from reelword.errors import Unreachable
from reelword.exchanges import Exchange, Pause, Progress, id_of, read, read_job, send
from reelword.job import Job
from reelword.retries import TryAgain, check, policy, refuse

Value = TypeVar("Value")


class Client:
    """Speaks with one service. Close it, or use it as a context; several may share it.

    Args:
        base_url: of the service; by default REELWORD_URL, or this machine's port 8000.
        key: where the service asks for one; by default REELWORD_KEY.
        attempts: how often a request that fails on the way is sent at most.
        timeout: seconds without a byte after which a request has failed.
        transport: of httpx, for tests.

    Raises:
        Unreachable: by every method, where the service does not answer.
        Refused: by every method, where it refuses; ``NotFound``, ``RateLimited`` and others are kinds of it.
    """

    def __init__(
        self,
        base_url: str | None = None,
        *,
        key: str | None = None,
        attempts: int = 5,
        timeout: float = 60.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        base_url = base_url or os.environ.get("REELWORD_URL") or "http://127.0.0.1:8000"
        key = key or os.environ.get("REELWORD_KEY")
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

    def caption(
        self,
        video: Video,
        *,
        timeout: float | None = None,
        progress: Progress | None = None,
        **options: Unpack[Options],
    ) -> Job:
        """Sends a video and waits for its caption.

        Args:
            video: a path, an http(s) address, bytes or an open file.
            timeout: seconds to wait at most; None waits as long as it takes.
            progress: is called with the job at each change.
            options: of the job.

        Raises:
            JobFailed: the job ended without a caption.
            NotFinished: it was not over in time, and continues.
        """
        return self._bind(self._run(exchanges.caption(video, options, timeout, progress)))

    def submit(self, video: Video, *, idempotency_key: str | None = None, **options: Unpack[Options]) -> Job:
        """Sends a video and returns its job, which waits or runs.

        Args:
            video: a path, an http(s) address, bytes or an open file.
            idempotency_key: names the request: sent again, it is the same job. Random by default.
            options: of the job.
        """
        return self._read_job(calls.submit(video, options, idempotency_key))

    def job(self, job: JobDocument | str) -> Job:
        """Reads a job, of itself or its id."""
        return self._read_job(calls.job(id_of(job)))

    def wait(
        self, job: JobDocument | str, *, timeout: float | None = None, progress: Progress | None = None
    ) -> Job:
        """Waits until a job is over, failed or not; the service answers when it changes, so none is polled.

        Args:
            job: or its id.
            timeout: seconds to wait at most; None waits as long as it takes.
            progress: is called with the job at each change.

        Raises:
            NotFinished: it was not over in time.
        """
        return self._bind(self._run(exchanges.wait(job, timeout, progress)))

    def events(self, job: JobDocument | str, *, after: str | None = None) -> Iterator[Event]:
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
        self, job: JobDocument | str, *, idempotency_key: str | None = None, **options: Unpack[Options]
    ) -> Job:
        """Captions the film of a job again, by another captioner or other options."""
        return self._read_job(calls.recaption(id_of(job), options, idempotency_key))

    def cancel(self, job: JobDocument | str) -> Job:
        """Cancels a job; deletes the result of one that is over."""
        return self._read_job(calls.cancel(id_of(job)))

    def jobs(self, **filters: Unpack[Filters]) -> Iterator[JobSummary]:
        """Yields jobs, newest first, a page at a time."""
        cursor: str | None = None
        while True:
            page = self._run(exchanges.page_of_jobs(filters, cursor))
            yield from page.jobs
            if (cursor := page.next) is None:
                return

    def search(
        self, words: str, limit: int = 12, jobs: Sequence[JobDocument | str] = ()
    ) -> list[FoundMoment]:
        """Finds the moments that fit some words best, the best first; of some jobs, or of all."""
        call = calls.search(words, limit, [id_of(job) for job in jobs])
        return (self._run(read(FoundMoments, call))).moments

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
        for line in self._read_lines(calls.batch_results(id_of(batch))):
            yield self._bind(JobDocument.model_validate_json(line))

    def is_ready(self) -> bool:
        """Returns whether the service answers, takes jobs and has a worker for them."""
        try:
            return (self._http.request("GET", "/readyz")).is_success
        except httpx.TransportError:
            return False

    def access(self) -> Access:
        """Reads whether the service asks for a key, whose this client's is, and what that may do."""
        return self._run(read(Access, calls.access()))

    def models(self) -> Models:
        """Lists the captioners that live workers have, and the options."""
        return self._run(read(Models, calls.models()))

    def attention(self, job: JobDocument | str) -> Attention:
        """Reads from which moment and place each word of a caption comes."""
        return self._run(read(Attention, calls.job_part(id_of(job), "attention")))

    def attention_png(self, job: JobDocument | str) -> bytes:
        """Draws the same as a picture."""
        return self._read_bytes(job, "attention.png")

    def segment_attention(self, job: JobDocument | str, number: int) -> Attention:
        """Reads the same of a film's segment, counted from 0."""
        return self._run(read(Attention, calls.job_part(id_of(job), f"segments/{number}/attention")))

    def captions(self, job: JobDocument | str, kind: CaptionsKind = "vtt", *, karaoke: bool = False) -> str:
        """Writes the captions of a film's segments as WebVTT, SubRip, CSV or JSON.

        karaoke: puts into WebVTT when each word's moment begins.
        """
        params = {"karaoke": "true"} if karaoke else {}
        return (self._run(send(calls.job_part(id_of(job), f"captions.{kind}", **params)))).text

    def frame(self, job: JobDocument | str, number: int) -> bytes:
        """Reads a frame that the captioner saw, counted from 0 in the order of ``sampled``, as a JPEG."""
        return self._read_bytes(job, f"frames/{number}.jpg")

    def segment_frame(self, job: JobDocument | str, number: int) -> bytes:
        """Reads the frame that stands for a film's segment, counted from 0, as a JPEG."""
        return self._read_bytes(job, f"segments/{number}/frame.jpg")

    def video(self, job: JobDocument | str) -> bytes:
        """Reads the file that was sent, while it is kept."""
        return self._read_bytes(job, "video")

    def clip(self, job: JobDocument | str, kind: ClipKind = "mp4") -> bytes:
        """Makes a clip of 3 to 6 seconds with the caption on it and each word's place lit."""
        return self._read_bytes(job, f"clip.{kind}")

    def poster(self, job: JobDocument | str, word: str | None = None) -> bytes:
        """Draws a frame with the caption on it, and the place of a word lit, as a PNG."""
        params = {} if word is None else {"word": word}
        return (self._run(send(calls.job_part(id_of(job), "poster.png", **params)))).content

    def judge(self, job: JobDocument | str, verdict: Verdict, correction: str | None = None) -> None:
        """Says whether a caption is right, and what would be."""
        self._run(send(calls.add_verdict(id_of(job), verdict, correction)))

    def verdicts(self) -> list[KeptVerdict]:
        """Lists what was said of captions, of all jobs that the key may see."""
        return [KeptVerdict.model_validate_json(line) for line in self._read_lines(calls.verdicts())]

    def deliveries(self, job: JobDocument | str) -> list[Delivery]:
        """Lists what was done to tell the webhook of a job."""
        return (self._run(read(Deliveries, calls.job_part(id_of(job), "deliveries")))).deliveries

    def test_webhook(self, url: str) -> TestedWebhook:
        """Has the service send a trial message to an address."""
        return self._run(read(TestedWebhook, calls.test_webhook(url)))

    def _bind(self, document: JobDocument) -> Job:
        return Job.of(document, self)

    def _read_job(self, call: Call) -> Job:
        return self._bind(self._run(read_job(call)))

    def _read_bytes(self, job: JobDocument | str, part: str) -> bytes:
        return (self._run(send(calls.job_part(id_of(job), part)))).content

    def _read_lines(self, call: Call) -> list[str]:
        """Reads an answer that has a JSON object on each line."""
        return [line for line in (self._run(send(call))).text.split("\n") if line]

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
            raise Unreachable.at(self._http.base_url, error) from error
        return refuse(response)
