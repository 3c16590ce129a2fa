"""Answers ``/jobs/{id}/captions.*`` and ``/jobs/{id}/segments``: a film's segments as files, and what each
shows.
"""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Response

from app.api import problems, refusals
from app.api.dependencies import ApiDependencies, CallerDep, ServiceDep
from app.api.routes.jobs import KEEP, JobId, find, how_it_ended, keep_as, read_blob
from app.documents.exports import FORMATS
from app.documents.job import document_of, kept_segments
from app.documents.segments import film_of
from app.jobs.blobs import BlobMissingError
from app.jobs.job import Job
from app.jobs.keeping.kept_segments import attention_key, frame_key
from models.caption import AttentionDocument

Kind = Annotated[
    Literal["vtt", "srt", "json", "csv", "coco.json", "fiftyone.json", "labelstudio.json", "chapters.xml"],
    Path(description="What is written."),
]
Karaoke = Annotated[bool, Query(description="Of WebVTT: each word appears when its moment begins.")]
Number = Annotated[int, Path(ge=0, description="Counted from 0, in the order of `segments`.")]
FILES: dict[str, Any] = {each.media_type.partition(";")[0]: {} for each in FORMATS.values()}

router = APIRouter(prefix="/jobs/{job_id}", tags=["jobs"])


@router.get(
    "/captions.{kind}",
    response_class=Response,
    responses={
        200: {"content": FILES, "description": "The file; of a job that runs, as far as it is."},
        **problems.openapi_responses(refusals.UnknownJob, refusals.JobHasNoCaptions, refusals.JobNotFinished),
    },
)
def get_captions(
    job_id: JobId, kind: Kind, service: ServiceDep, caller: CallerDep, karaoke: Karaoke = False
) -> Response:
    """Writes the captions of a film's segments: subtitles, table, JSON, chapters, files for annotation tools.

    Also while the job runs; of a job without segments one caption, which lasts as long as the video.
    """
    job = find(service, job_id, caller)
    _check_is_captioned(job, service)
    form, film = FORMATS[kind], film_of(job, service.blobs)
    if form.has_words or (karaoke and kind == "vtt"):
        film = film.with_words(_attentions(job, service, len(film.segments)))
    headers = keep_as(job, f".{kind}") | _caching(job)
    return Response(form.write(film).encode(), media_type=form.media_type, headers=headers)


def _attentions(job: Job, service: ApiDependencies, count: int) -> Iterator[AttentionDocument | None]:
    """Reads where each segment's words have their moments, as far as that is kept."""
    kept = kept_segments(job, service.blobs)
    keys = (
        [f"{job.results}/attention.json"]
        if kept is None
        else [attention_key(kept.folder, number) for number in range(count)]
    )
    return (_read_attention(service, key) for key in keys)


def _read_attention(service: ApiDependencies, key: str) -> AttentionDocument | None:
    try:
        return AttentionDocument.model_validate_json(service.blobs.read(key))
    except BlobMissingError:
        return None


@router.get(
    "/segments/{number}/attention",
    response_model=AttentionDocument,
    responses=problems.openapi_responses(
        refusals.UnknownJob, refusals.UnknownSegment, refusals.JobHasNoAttention
    ),
)
def get_segment_attention(job_id: JobId, number: Number, service: ServiceDep, caller: CallerDep) -> Response:
    """Returns where the captioner looked for each word of a segment's best caption, on the film's clock."""
    job = find(service, job_id, caller)
    folder = _segment_folder(job, number, service)
    missing = refusals.JobHasNoAttention("The job was sent with attention=false.")
    data = read_blob(service, attention_key(folder, number), missing)
    return Response(data, media_type="application/json", headers=_caching(job))


@router.get(
    "/segments/{number}/frame.jpg",
    response_class=Response,
    responses={
        200: {"content": {"image/jpeg": {}}, "description": "The frame, its long side at most 480 pixels."},
        **problems.openapi_responses(refusals.UnknownJob, refusals.UnknownSegment),
    },
)
def get_segment_frame(job_id: JobId, number: Number, service: ServiceDep, caller: CallerDep) -> Response:
    """Shows the frame that stands for a segment: the one at `representative`."""
    job = find(service, job_id, caller)
    folder = _segment_folder(job, number, service)
    missing = refusals.UnknownSegment(f"Segment {number} is kept no more.")
    data = read_blob(service, frame_key(folder, number), missing)
    return Response(data, media_type="image/jpeg", headers=_caching(job))


def _segment_folder(job: Job, number: int, service: ApiDependencies) -> str:
    """Finds where a segment's files lie. Raises UnknownSegment."""
    kept = kept_segments(job, service.blobs)
    if kept is None or number >= kept.done:
        raise refusals.UnknownSegment(f"The job has {0 if kept is None else kept.done} segments so far.")
    return kept.folder


def _check_is_captioned(job: Job, service: ApiDependencies) -> None:
    """Raises JobNotFinished where a job has no caption yet, JobHasNoCaptions where it never will."""
    if job.submission.validate_only:
        raise refusals.JobHasNoCaptions("The job was sent with validate_only=true.")
    if job.state == "succeeded":
        return
    if document_of(job, service.blobs).segments:
        return
    if job.is_over:
        raise refusals.JobHasNoCaptions(f"The job has {how_it_ended(job)}, so it has no captions.")
    raise refusals.JobNotFinished(f"The job is {job.state}, and nothing of it is captioned yet.")


def _caching(job: Job) -> dict[str, str]:
    return KEEP if job.state == "succeeded" else {"Cache-Control": "no-store"}
