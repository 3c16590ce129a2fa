"""Makes jobs of what a request has brought: its files become blobs, what it asks for records.

A batch is made of all of its videos, or of none.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from app.api import refusals
from app.api.accepting.repeated_request import RepeatedRequest
from app.api.dependencies import ApiDependencies, Caller
from app.api.receiving.batch_body import BatchUpload
from app.api.receiving.fields import CaptionRequest, read_request
from app.api.receiving.upload import Upload, displayable
from app.errors import QueueUnavailable, UrlNotAllowed
from app.fetching.addresses import AllowedHosts
from app.jobs.batches import HELD_SECONDS, JobBatch, hold_uploads
from app.jobs.blobs import BlobMissingError
from app.jobs.idempotency import Reservation, fingerprint_of
from app.jobs.job import Job
from app.jobs.job_store import NewJob
from app.jobs.options import CaptionOptions


@dataclass(frozen=True)
class Acceptance:
    """Makes jobs of requests."""

    service: ApiDependencies  #: what routes need
    caller: Caller  #: who sends them

    def accept_once(
        self, request: CaptionRequest, upload: Upload, repeated: RepeatedRequest
    ) -> tuple[Job, bool]:
        """Makes a job, or finds the one that an earlier request with the key has made, and says which.

        Args:
            upload: the file, or none where the worker is to fetch one.
            repeated: the request's key.

        Raises:
            RequestError, QueueError: as ``RepeatedRequest.make_once`` and ``accept``.
        """
        return repeated.make_once(
            lambda: fingerprint_of([as_told(request), request.file or upload.sha256]),
            lambda reservation: self.accept(request, upload, reservation),
            self.service.jobs.get,
        )

    def accept(self, request: CaptionRequest, upload: Upload, reservation: Reservation | None = None) -> Job:
        """Makes a blob of the file and a job of the blob; where that fails, neither is left.

        Args:
            upload: the file, or none where the worker is to fetch one.
            reservation: the idempotency key that stands for the job from now on.

        Raises:
            RequestError, OptionsRefused: leaves of them, where it cannot be done as asked.
            QueueError: leaves of it, where the job cannot be kept.
            KeyTaken: the key stands for another job.
        """

        files = self.service.files
        sent = None if request.file is None else files.find(request.file, self.caller.only)
        if sent is not None:
            upload = Upload(None, sent.size, {}, sent.filename, files.digest(sent))

        def place(key: str) -> None:
            if sent is not None:
                self.service.blobs.put(files.path(sent), key)
            elif upload.file is not None:
                self.service.blobs.adopt(upload.file, key)

        filename = upload.filename or filename_of(request.submission.source_url)
        job = self._submit(request, filename, place, reservation, sha256=upload.sha256)
        if sent is not None:
            files.remove(sent)
        if upload.size:
            self.service.metrics.upload_bytes.observe(upload.size)
        return job

    def accept_again(
        self, request: CaptionRequest, earlier: Job, repeated: RepeatedRequest
    ) -> tuple[Job, bool]:
        """Makes a job of a copy of an earlier one's upload; where that fails, neither is left.

        Args:
            earlier: the job; its upload may be missing where the video's features are kept.
            repeated: remembers the new job for the request's key.

        Returns and raises as ``accept_once``, and UploadGone.
        """
        sha256 = earlier.sha256

        def place(key: str) -> None:
            try:
                self.service.blobs.copy(earlier.upload, key)
            except BlobMissingError as error:
                has_features = sha256 is not None and self.service.features.has(sha256)
                if earlier.state != "succeeded" or not has_features:
                    raise refusals.UploadGone(f"The video of job {earlier.id} is not kept.") from error

        terms = {"sha256": sha256, "recaption_of": earlier.id}
        return repeated.make_once(
            lambda: fingerprint_of([as_told(request), earlier.id]),
            lambda reservation: self._submit(request, earlier.filename, place, reservation, **terms),
            self.service.jobs.get,
        )

    def accept_batch_once(self, upload: BatchUpload, repeated: RepeatedRequest) -> tuple[JobBatch, bool]:
        """Makes a batch, or finds the one that an earlier request with the same idempotency key has made.

        Returns it, and whether it is an earlier one's. Raises what ``make_once`` and ``accept_batch`` raise.
        """

        def fingerprint() -> str:
            pairs = zip(_read(upload), upload.items, strict=True)
            return fingerprint_of([[as_told(request), item.sha256] for request, item in pairs])

        return repeated.make_once(
            fingerprint,
            lambda reservation: self.accept_batch(upload, reservation),
            self.service.batches.get,
        )

    def accept_batch(self, upload: BatchUpload, reservation: Reservation | None = None) -> JobBatch:
        """Makes blobs of a batch's files and jobs of all of it; where that fails, nothing is left.

        Files become blobs first, then one step in Redis makes all the jobs. A process that dies between the
        two leaves blobs without jobs, which the sweeper removes.

        Raises leaves of RequestError and QueueError, and KeyTaken where the reserved key stands for something
        else.
        """
        service, requests = self.service, _read(upload)
        for request in requests:
            self._check(request)
        limit, waiting = service.settings.max_backlog, service.waiting()
        if waiting + len(requests) > limit:
            more = f"{len(requests)} more make more than {limit}"
            raise refusals.BacklogFull(f"{waiting} jobs are waiting, and {more}.")
        options = choose_captioner(service, requests[0].options)  # all have the same
        batch_id = uuid4().hex
        terms = {"batch": batch_id, "traceparent": service.tracing.traceparent()}
        jobs = [
            self._new_job(
                request,
                item.filename or filename_of(request.submission.source_url),
                options,
                **terms,
                sha256=item.sha256 or None,
            )
            for request, item in zip(requests, upload.items, strict=True)
        ]
        with self._adopted(jobs, upload.items):
            batch = service.batches.submit(batch_id, jobs, reservation)
        for item in upload.items:
            if item.file is not None:
                service.metrics.upload_bytes.observe(item.size)
        return batch

    def _check(self, request: CaptionRequest) -> None:
        """Raises UrlNotSupported, UrlNotAllowed, WebhooksOff; KeyScopeTooSmall where the caller's key may not
        send jobs that go before others'.
        """
        settings, key, url = self.service.settings, self.caller.key, request.submission.source_url
        if url is not None and settings.urls == "off":
            raise refusals.UrlNotSupported("The request has a url.")
        if url is not None and AllowedHosts(settings.url_hosts).refuses_literally(url):
            raise UrlNotAllowed("The address lies in a network that videos are not fetched from.")
        if request.submission.webhook is not None and self.service.webhooks.sender is None:
            raise refusals.WebhooksOff("The request has a webhook.")
        if request.priority == "high" and key is not None and not (key.high or self.caller.is_admin):
            raise refusals.KeyScopeTooSmall(f"The key {key.name} may not send jobs with priority=high.")

    def _new_job(
        self, request: CaptionRequest, filename: str, options: CaptionOptions, **terms: str | None
    ) -> NewJob:
        """Makes the job of a request; ``terms``: of its submission, beside those of the caller."""
        job_id, whose = uuid4().hex, {"owner": self.caller.owner, "limits": self.caller.limits}
        submission = request.submission.model_copy(update={**terms, **whose})
        return NewJob(job_id, options, f"uploads/{job_id}", filename, request.priority, submission)

    def _submit(
        self,
        request: CaptionRequest,
        filename: str,
        place: Callable[[str], None],
        reservation: Reservation | None = None,
        **terms: str | None,
    ) -> Job:
        """Makes the job's blob by ``place``, at the key that it is called with, then the job."""
        self._check(request)
        new = self._new_job(request, filename, choose_captioner(self.service, request.options), **terms)
        try:
            place(new.upload)
            with self.service.submitting(new.job_id, new.submission) as spanned:
                members = {**vars(new), "submission": spanned}
                return self.service.jobs.submit(**members, reservation=reservation)
        except BaseException as error:
            # else the job may be there all the same, and the client's next try finds it by its key
            if reservation is None or not isinstance(error, QueueUnavailable):
                self.service.blobs.remove(new.upload)
            raise

    @contextmanager
    def _adopted(self, jobs: Sequence[NewJob], items: Sequence[Upload]) -> Iterator[None]:
        """Makes blobs of the files, which go again where the jobs come to nothing."""
        adopted: list[str] = []
        hold_until = -math.inf
        try:
            for job, item in zip(jobs, items, strict=True):
                if item.file is not None:
                    if time.monotonic() > hold_until:
                        hold_uploads(self.service.jobs, [each.job_id for each in jobs])
                        hold_until = time.monotonic() + HELD_SECONDS / 10
                    adopted.append(job.upload)
                    self.service.blobs.adopt(item.file, job.upload)
            yield
        except QueueUnavailable:
            raise  # all the jobs may be there; if they are not, the sweeper removes their files
        except BaseException:
            for key in adopted:
                self.service.blobs.remove(key)
            raise


def _read(upload: BatchUpload) -> list[CaptionRequest]:
    """Reads what is asked for each video. Raises UnknownField, InvalidOption."""
    return [read_request({**upload.fields, **item.fields}, is_json=upload.is_json) for item in upload.items]


def as_told(request: CaptionRequest) -> dict[str, Any]:
    """Lists all that a request has beside its video, for comparing two."""
    return {
        "options": request.options.model_dump(mode="json", exclude_defaults=True),
        "priority": request.priority,
        "submission": request.submission.model_dump(mode="json", exclude_defaults=True),
    }


def check_room(service: ApiDependencies, caller: Caller, announced: int, most: int) -> None:
    """Refuses jobs that could not be kept, before a body is read: StorageFull, BacklogFull, TooManyJobs.

    Args:
        announced: bytes of the body, as its header has it.
        most: that are taken; a larger body is refused for its size in a moment.
    """
    if announced <= most:
        service.room.check(announced)
    if service.waiting() >= service.settings.max_backlog:
        raise refusals.BacklogFull(f"{service.settings.max_backlog} jobs are waiting already.")
    service.jobs.check_concurrency(caller.owner, caller.limits)


def choose_captioner(service: ApiDependencies, options: CaptionOptions) -> CaptionOptions:
    """Fills in which captioner writes, which then stands in the record and is not chosen again.

    Where no worker lives nothing is known, and the job waits for one, which chooses. Raises OptionsRefused.
    """
    choices = service.registry.captioner_choices()
    if not choices.names:
        return options
    choices.resolve(options.of_segments)
    return options.with_choice(choices.resolve(options))


def filename_of(url: str | None) -> str:
    """Names the file that an address ends in, fit for display; empty where it ends in none."""
    path = "" if url is None else urlsplit(url).path
    return displayable(unquote(PurePosixPath(path).name))
