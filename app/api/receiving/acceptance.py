"""Makes a job of what a request has brought: its file becomes a blob, what it asks for a record."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from app.api import problems
from app.api.receiving.fields import CaptionRequest
from app.api.receiving.repeated_requests import Held, check_same, reserve
from app.api.receiving.upload import Upload, displayable
from app.errors import (
    CaptionerLacksOption,
    CaptionerUnavailable,
    EmbeddingMissing,
    MembersDiffer,
    PromptRefused,
    QueueUnavailable,
)
from app.jobs.idempotency import KeptAnswer, KeyTaken, Reservation, fingerprint_of
from app.jobs.job import Job, Submission
from app.jobs.options import CaptionOptions

if TYPE_CHECKING:  # it has what receives bodies, and not the other way round
    from app.api.dependencies import ApiDependencies


@dataclass(frozen=True)
class Acceptance:
    """Makes jobs of requests.

    service: what routes need. owner: id of the key that sends them.
    """

    service: ApiDependencies
    owner: str | None = None

    def accept_once(self, request: CaptionRequest, upload: Upload, key: str, held: Held) -> tuple[Job, bool]:
        """Makes a job, or finds the one that an earlier request with the same idempotency key has made.

        Args:
            request: what is asked for.
            upload: the file, or none where the worker is to fetch one.
            key: as the client sent it, empty for none.
            held: the key's reservation, or what it stands for.

        Returns:
            The job, and whether it is an earlier one's.

        Raises:
            IdempotencyMismatch: the earlier request was another.
            IdempotencyInProgress: another request with the key has overtaken this one.
            RequestError, QueueError: as ``accept``.
        """
        if held is None:
            return self.accept(request, upload), False
        asked = fingerprint_of([as_told(request), upload.sha256])
        if isinstance(held, Reservation):
            try:
                return self.accept(request, upload, held.of(asked)), False
            except KeyTaken:
                held = reserve(self.service, key, self.owner)
        if isinstance(held, KeptAnswer):
            check_same(held, asked)
            if job := self.service.jobs.get(held.id):
                return job, True
        raise problems.IdempotencyInProgress

    def accept(self, request: CaptionRequest, upload: Upload, held: Reservation | None = None) -> Job:
        """Makes a blob of the file and a job of the blob; where that fails, neither is left.

        Args:
            request: what is asked for.
            upload: the file, or none where the worker is to fetch one.
            held: the idempotency key that stands for the job from now on.

        Raises:
            RequestError: leaves of it, where it cannot be done as asked.
            QueueError: leaves of it, where the job cannot be kept.
            KeyTaken: the key stands for another job.
        """
        job_id = uuid4().hex
        key = f"uploads/{job_id}"
        try:
            check_submission(self.service, request.submission)
            options = choose_captioner(self.service, request.options)
            if upload.file is not None:
                self.service.blobs.adopt(upload.file, key)
            told = {
                "owner": self.owner,
                "limits": self.service.keys.limits_of(self.owner),
                "sha256": upload.sha256,
            }
            with self.service.submitting(job_id, request.submission.model_copy(update=told)) as submission:
                job = self.service.jobs.submit(
                    job_id,
                    options,
                    key,
                    filename=upload.filename or filename_of(submission.source_url),
                    priority=request.priority,
                    submission=submission,
                    reservation=held,
                )
        except QueueUnavailable:
            if held is None:
                self._remove(upload, key)
            raise  # else the job may be there all the same, and the client's next try finds it by its key
        except BaseException:
            self._remove(upload, key)
            raise
        if upload.file is not None:
            self.service.metrics.upload_bytes.observe(upload.size)
        return job

    def _remove(self, upload: Upload, key: str) -> None:
        if upload.file is not None:
            upload.file.unlink(missing_ok=True)
            self.service.blobs.remove(key)


def as_told(request: CaptionRequest) -> dict[str, Any]:
    """Lists all that a request says beside its video, for comparing two."""
    return {
        "options": request.options.model_dump(mode="json", exclude_defaults=True),
        "priority": request.priority,
        "submission": request.submission.model_dump(mode="json", exclude_defaults=True),
    }


def check_submission(service: ApiDependencies, submission: Submission) -> None:
    """Checks what a job is told beside its options. Raises UrlNotSupported, WebhooksOff."""
    if submission.source_url is not None and service.settings.urls == "off":
        raise problems.UrlNotSupported("The request has a url.")
    if submission.webhook is not None and service.webhooks.sender is None:
        raise problems.WebhooksOff("The request has a webhook.")


def choose_captioner(service: ApiDependencies, options: CaptionOptions) -> CaptionOptions:
    """Fills in who writes, which then stands in the record: nobody chooses again.

    Where no worker lives nothing is known, and the job waits for one, which chooses.

    Raises CaptionerUnknown, InvalidMembers, PromptNotTaken, OptionNotTaken.
    """
    choices = service.registry.captioner_choices()
    if not choices.names:
        return options
    try:
        choices.resolve(options.of_segments)
        return options.with_choice(choices.resolve(options))
    except CaptionerUnavailable as failure:
        raise problems.CaptionerUnknown(
            f"No worker has a captioner called {failure.name}.", known=failure.known
        ) from failure
    except EmbeddingMissing as failure:
        detail = "No worker has the captioner fusion, nor the semantic embedding that it chooses captions by."
        raise problems.CaptionerUnknown(detail, known=choices.names) from failure
    except MembersDiffer as failure:
        raise problems.InvalidMembers(str(failure)) from failure
    except PromptRefused as failure:
        raise problems.PromptNotTaken(str(failure), known=choices.prompted) from failure
    except CaptionerLacksOption as failure:
        raise problems.OptionNotTaken(str(failure)) from failure


def filename_of(url: str | None) -> str:
    """Names the file that an address ends in, fit for display; empty where it ends in none."""
    path = "" if url is None else urlsplit(url).path
    return displayable(unquote(PurePosixPath(path).name))
