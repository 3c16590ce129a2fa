"""Makes jobs of all videos of a batch, or of none.

Files become blobs first, then one step in Redis makes all the jobs. A process that dies between the two
leaves blobs without jobs, which the sweeper removes.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING
from uuid import uuid4

from app.api import problems
from app.api.receiving.acceptance import check_submission, choose_captioner, filename_of
from app.api.receiving.batch_body import BatchUpload
from app.api.receiving.fields import CaptionRequest, read_request
from app.api.receiving.upload import Upload
from app.errors import QueueUnavailable
from app.jobs.batches import HELD_SECONDS, JobBatch, hold_uploads
from app.jobs.job_store import NewJob
from app.jobs.options import CaptionOptions

if TYPE_CHECKING:  # it has what receives bodies, and not the other way round
    from app.api.dependencies import ApiDependencies, Caller


def accept_batch(service: ApiDependencies, caller: Caller, upload: BatchUpload) -> JobBatch:
    """Makes blobs of a batch's files and jobs of all of it; where that fails, nothing is left.

    Args:
        service: what routes need.
        caller: who sends it.
        upload: what came.

    Raises:
        RequestError: leaves of it, where one of the videos cannot be taken as asked.
        QueueError: leaves of it, where the jobs cannot be kept.
    """
    requests = [
        read_request({**upload.fields, **item.fields}, is_json=upload.is_json) for item in upload.items
    ]
    for request in requests:
        check_submission(service, request.submission)
    _check_backlog(service, len(requests))
    options = choose_captioner(service, requests[0].options)  # all have the same
    batch_id = uuid4().hex
    jobs = [
        _new_job(request, item, options, caller, batch_id)
        for request, item in zip(requests, upload.items, strict=True)
    ]
    batch = _keep(service, batch_id, jobs, upload.items)
    for item in upload.items:
        if item.file is not None:
            service.metrics.upload_bytes.observe(item.size)
    return batch


def _check_backlog(service: ApiDependencies, items: int) -> None:
    limit, waiting = service.settings.max_backlog, service.waiting()
    if waiting + items > limit:
        raise problems.BacklogFull(f"{waiting} jobs are waiting, and {items} more make more than {limit}.")


def _new_job(
    request: CaptionRequest, item: Upload, options: CaptionOptions, caller: Caller, batch_id: str
) -> NewJob:
    job_id = uuid4().hex
    told = {"owner": caller.owner, "limits": caller.limits, "batch": batch_id, "sha256": item.sha256 or None}
    return NewJob(
        job_id=job_id,
        options=options,
        upload=f"uploads/{job_id}",
        filename=item.filename or filename_of(request.submission.source_url),
        priority=request.priority,
        submission=request.submission.model_copy(update=told),
    )


def _keep(service: ApiDependencies, batch_id: str, jobs: list[NewJob], items: list[Upload]) -> JobBatch:
    adopted: list[str] = []
    hold_until = -math.inf
    try:
        for job, item in zip(jobs, items, strict=True):
            if item.file is not None:
                if time.monotonic() > hold_until:
                    hold_uploads(service.jobs, [each.job_id for each in jobs])
                    hold_until = time.monotonic() + HELD_SECONDS / 10
                adopted.append(job.upload)
                service.blobs.adopt(item.file, job.upload)
        return service.batches.submit(batch_id, jobs)
    except QueueUnavailable:
        raise  # all the jobs may be there; if they are not, the sweeper removes their files
    except BaseException:
        for key in adopted:
            service.blobs.remove(key)
        raise
