"""Names what can go wrong between a program and the service."""

from __future__ import annotations

from typing import Any

import httpx

from reelword.documents import Job


class ClientError(Exception):
    """Is the base of all errors of this package."""


class Unreachable(ClientError):
    """The service did not answer, however often it was asked."""


class Refused(ClientError):
    """The service refused a request.

    status: of HTTP. code: the problem's stable name. hint: what to do. known: accepted values, where listed.
    """

    def __init__(self, response: httpx.Response) -> None:
        problem = _problem_of(response)
        self.status = response.status_code
        self.code = str(problem.get("code", "http_error"))
        self.detail = str(problem.get("detail", f"The service answered {response.status_code}."))
        self.hint = str(problem.get("hint", ""))
        self.known: list[str] | None = problem.get("known")
        super().__init__(f"{self.detail} {self.hint}".strip())


class JobFailed(ClientError):
    """A job ended without a caption: it failed, was cancelled, or its answer is no longer kept."""

    def __init__(self, job: Job) -> None:
        self.job = job
        fault = job.error
        message = f"{fault.message} {fault.hint}" if fault else f"The job is {job.state}."
        super().__init__(message.strip())


class NotFinished(ClientError):
    """A job was not over within the time that was given; it goes on."""

    def __init__(self, job: Job, seconds: float) -> None:
        self.job = job
        super().__init__(f"Job {job.id} is still {job.state} after {seconds:g} seconds.")


def _problem_of(response: httpx.Response) -> dict[str, Any]:
    try:
        document = response.json()
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
