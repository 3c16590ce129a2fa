"""Names what can go wrong between a program and the service."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import httpx

from reelword.documents import JobDocument


class ClientError(Exception):
    """Is the base of all errors of this package."""


class Unreachable(ClientError):
    """The service did not answer, however often it was asked."""

    @classmethod
    def at(cls, url: httpx.URL, error: Exception) -> Self:
        """Returns the error of a request that brought no answer."""
        hint = "Start a service there with make serve, or name another by base_url or REELWORD_URL."
        return cls(f"{url} does not answer: {error!r}. {hint}")


class Refused(ClientError):
    """The service refused a request.

    status: of HTTP. code: the problem's stable name. hint: what to do. known: accepted values, where listed.
    errors: each mistake of the request, where several are told. pause: what ``Retry-After`` says.
    """

    def __init__(self, response: httpx.Response) -> None:
        problem = _problem_of(response)
        self.status = response.status_code
        self.code = str(problem.get("code", "http_error"))
        self.detail = str(problem.get("detail", f"The service answered {response.status_code}."))
        self.hint = str(problem.get("hint", ""))
        self.known: list[str] | None = problem.get("known")
        self.errors: list[dict[str, Any]] = problem.get("errors") or []
        self.pause: str = response.headers.get("Retry-After", "")
        super().__init__(f"{self.detail} {self.hint}".strip())


class Invalid(Refused):
    """A request is not as the service takes it; ``errors`` has all that is wrong, where it is listed."""


class NotAllowed(Refused):
    """A key is missing, unknown, or not meant for this."""


class NotFound(Refused):
    """There is no such job, batch or part of one, or it belongs to another key."""


class TooLarge(Refused):
    """A video, or another body, is larger than the service takes."""


class RateLimited(Refused):
    """The key, or the address, has sent too much; ``retry_after`` says in how many seconds there is room."""

    @property
    def retry_after(self) -> float | None:
        """Returns seconds; None where the service names none."""
        return float(self.pause) if self.pause.isdecimal() else None


KINDS: Mapping[int, type[Refused]] = {
    **dict.fromkeys((400, 415, 422), Invalid),
    **dict.fromkeys((401, 403), NotAllowed),
    **dict.fromkeys((404, 410), NotFound),
    413: TooLarge,
    429: RateLimited,
}


def name_refusal(response: httpx.Response) -> Refused:
    """Makes the error of an answer that refuses a request."""
    return KINDS.get(response.status_code, Refused)(response)


class JobFailed(ClientError):
    """A job ended without a caption: it failed, was cancelled, or its answer is no longer kept.

    code: the stable name of what went wrong, or the job's state where nothing did. hint: what to do.
    """

    def __init__(self, job: JobDocument) -> None:
        self.job = job
        fault = job.error
        self.code, self.hint = (fault.code, fault.hint) if fault else (job.state, "")
        message = f"{fault.message} {fault.hint}" if fault else f"The job is {job.state}."
        super().__init__(message.strip())


class NotFinished(ClientError):
    """A job was not over within the time that was given; it goes on."""

    def __init__(self, job: JobDocument, seconds: float) -> None:
        self.job = job
        super().__init__(f"Job {job.id} is still {job.state} after {seconds:g} seconds.")


def _problem_of(response: httpx.Response) -> dict[str, Any]:
    try:
        document = response.json()
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
