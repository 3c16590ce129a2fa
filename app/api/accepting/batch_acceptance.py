"""Makes jobs of all videos of a batch, or of none.

Files become blobs first, then one step in Redis makes all the jobs. A process that dies between the two
leaves blobs without jobs, which the sweeper removes.
"""

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import uuid4

from app.api import refusals
from app.api.accepting import acceptance
from app.api.accepting.repeated_request import RepeatedRequest
from app.api.dependencies import ApiDependencies, Caller
from app.api.receiving.batch_body import BatchUpload
from app.api.receiving.fields import CaptionRequest, read_request
from app.api.receiving.upload import Upload
from app.errors import QueueUnavailable
from app.jobs.batches import HELD_SECONDS, JobBatch, hold_uploads
from app.jobs.idempotency import Reservation, fingerprint_of
from app.jobs.job_store import NewJob
from app.jobs.options import CaptionOptions


@dataclass(frozen=True)
class BatchAcceptance:
    """Makes batches of requests."""

    service: ApiDependencies  #: what routes need
    caller: Caller  #: who sends them

    def accept_once(self, upload: BatchUpload, repeated: RepeatedRequest) -> tuple[JobBatch, bool]:
        """Makes a batch, or finds the one that an earlier request with the same idempotency key has made.

        Returns it, and whether it is an earlier one's. Raises what ``make_once`` and ``accept`` raise.
        """

        def fingerprint() -> str:
            pairs = zip(_read(upload), upload.items, strict=True)
            return fingerprint_of([[acceptance.as_told(request), item.sha256] for request, item in pairs])

        return repeated.make_once(
            fingerprint, lambda reservation: self.accept(upload, reservation), self.service.batches.get
        )

    def accept(self, upload: BatchUpload, reservation: Reservation | None = None) -> JobBatch:
        """Makes blobs of a batch's files and jobs of all of it; where that fails, nothing is left.

        Raises leaves of RequestError and QueueError, and KeyTaken where the reserved key stands for something
        else.
        """
        service, requests = self.service, _read(upload)
        for request in requests:
            acceptance.check_submission(service, request.submission)
            acceptance.check_priority(self.caller, request.priority)
        limit, waiting = service.settings.max_backlog, service.waiting()
        if waiting + len(requests) > limit:
            more = f"{len(requests)} more make more than {limit}"
            raise refusals.BacklogFull(f"{waiting} jobs are waiting, and {more}.")
        options = acceptance.choose_captioner(service, requests[0].options)  # all have the same
        batch_id = uuid4().hex
        jobs = [
            _new_job(request, item, options, self.caller, batch_id, service.tracing.traceparent())
            for request, item in zip(requests, upload.items, strict=True)
        ]
        with self._adopted(jobs, upload.items):
            batch = service.batches.submit(batch_id, jobs, reservation)
        for item in upload.items:
            if item.file is not None:
                service.metrics.upload_bytes.observe(item.size)
        return batch

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


def _new_job(
    request: CaptionRequest,
    item: Upload,
    options: CaptionOptions,
    caller: Caller,
    batch_id: str,
    parent: str | None,
) -> NewJob:
    """parent: the span that the job is a part of."""
    job_id = uuid4().hex
    terms = {"owner": caller.owner, "limits": caller.limits, "batch": batch_id, "sha256": item.sha256 or None}
    return NewJob(
        job_id=job_id,
        options=options,
        upload=f"uploads/{job_id}",
        filename=item.filename or acceptance.filename_of(request.submission.source_url),
        priority=request.priority,
        submission=request.submission.model_copy(update={**terms, "traceparent": parent}),
    )
