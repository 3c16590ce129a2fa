"""Says what each operation asks the service, request after request, without sending anything.

An exchange is a generator: it yields a Call or a Pause and is handed the answer, until it returns its value.
``Client`` sends what it yields and blocks, ``AsyncClient`` awaits; both are driven by the same exchanges.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import httpx

from reelword import calls
from reelword.calls import Call, Filters, Options, Video
from reelword.documents import Batch, Document, JobDocument, JobPage
from reelword.errors import JobFailed, NotFinished

POLL_SECONDS = 1.0  #: between two looks, where the service does not hold requests

Value = TypeVar("Value")
DocumentT = TypeVar("DocumentT", bound=Document)


@dataclass(frozen=True)
class Pause:
    """Waits before the next request."""

    seconds: float


Exchange: TypeAlias = Generator[Call | Pause, httpx.Response | None, Value]
#: Is told how far a job is.
Progress: TypeAlias = Callable[[JobDocument], None]


def send(call: Call) -> Exchange[httpx.Response]:
    """Sends one request and returns its answer."""
    response = yield call
    assert response is not None, "a Call is handed its answer"
    return response


def read(kind: type[DocumentT], call: Call) -> Exchange[DocumentT]:
    """Reads the document that a request is answered with."""
    response = yield from send(call)
    return kind.model_validate(response.json())


def read_job(call: Call) -> Exchange[JobDocument]:
    """Reads the job that a request is answered with."""
    response = yield from send(call)
    return (yield from _job_of(response))


def _job_of(response: httpx.Response) -> Exchange[JobDocument]:
    """Reads a job; an answer to an upload names it only, and is asked for."""
    document = response.json()
    if response.status_code == 202 and "progress" not in document:
        return (yield from read_job(calls.job(document["id"])))
    return JobDocument.model_validate({**document, "etag": response.headers.get("ETag")})


def caption(
    video: Video, options: Options, timeout: float | None, progress: Progress | None
) -> Exchange[JobDocument]:
    """Sends a video and waits for its caption.

    Args:
        video: what is captioned.
        options: of the job.
        timeout: seconds to wait at most; None waits as long as it takes.
        progress: is called with the job at each change.

    Raises:
        JobFailed: the job ended without a caption.
        NotFinished: it was not over in time.
    """
    submitted = yield from read_job(calls.submit(video, options, None))
    job = yield from wait(submitted, timeout, progress)
    if job.state != "succeeded":
        raise JobFailed(job)
    return job


def wait(job: JobDocument | str, timeout: float | None, progress: Progress | None) -> Exchange[JobDocument]:
    """Waits until a job is over; the service answers when it changes, so none is polled.

    Args:
        job: or its id.
        timeout: seconds to wait at most; None waits as long as it takes.
        progress: is called with the job at each change.

    Raises:
        NotFinished: it was not over in time.
    """
    began = time.monotonic()
    is_read = isinstance(job, JobDocument) and job.etag is not None
    current = (
        job if isinstance(job, JobDocument) and is_read else (yield from read_job(calls.job(id_of(job))))
    )
    while not current.is_over:
        if progress is not None:
            progress(current)
        left = _seconds_left(began, timeout)
        if left <= 0:
            raise NotFinished(current, timeout or 0.0)
        response = yield from send(calls.job(current.id, current.etag, min(left, calls.LONG_POLL)))
        current = current if response.status_code == 304 else (yield from _job_of(response))
        if current.etag is None:  # a service that holds no requests
            yield Pause(min(left, POLL_SECONDS))
    if progress is not None:
        progress(current)
    return current


def wait_batch(batch: Batch | str, timeout: float | None) -> Exchange[Batch]:
    """Waits until all jobs of a batch are over. Raises TimeoutError."""
    began = time.monotonic()
    while True:
        current = yield from read(Batch, calls.batch(id_of(batch)))
        left = _seconds_left(began, timeout)
        if current.is_over:
            return current
        if left <= 0:
            raise TimeoutError(f"Batch {current.id} is not over after {timeout:g} seconds.")
        yield Pause(min(left, POLL_SECONDS))


def submit_batch(videos: Iterable[Video], options: Options, key: str | None) -> Exchange[Batch]:
    """Sends many videos with the same options.

    Args:
        videos: what is captioned.
        options: of all jobs.
        key: of idempotency.
    """
    return (yield from read(Batch, calls.submit_batch(videos, options, key)))


def page_of_jobs(filters: Filters, cursor: str | None) -> Exchange[JobPage]:
    """Reads a page of the list of jobs."""
    return (yield from read(JobPage, calls.jobs(filters, cursor)))


def id_of(thing: JobDocument | Batch | str) -> str:
    return thing if isinstance(thing, str) else thing.id


def _seconds_left(began: float, timeout: float | None) -> float:
    """Counts what is left of ``timeout`` seconds since ``began`` (of time.monotonic); None has no end."""
    return math.inf if timeout is None else began + timeout - time.monotonic()
