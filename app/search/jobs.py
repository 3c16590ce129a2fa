"""Makes moments of a service's jobs: of each segment of a film, or of a clip, whose middle frame shows it."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from PIL import Image

from app.documents.job import JobDocument, document_of
from app.errors import RecordUnreadable
from app.jobs.blobs import BlobMissingError, Blobs
from app.jobs.job import Job
from app.jobs.job_store import Jobs
from app.jobs.keeping.kept_segments import frame_key
from app.jobs.redis_client import connect, redis_url, unavailable_if_away
from app.search.moments import Found, Moment, rank
from app.segments.neighbours import SemanticSpace
from app.settings import Settings

PATIENCE = 2.0  #: seconds of trying again while Redis is away
MOST = 10_000  #: jobs that are looked at, those that ended last
LOOKED_AT = 4  #: moments of which the pictures are compared, for each that is shown


def search_jobs(words: str, settings: Settings, space: SemanticSpace | None, count: int) -> list[Found]:
    """Ranks the service's jobs by their captions, and the best of them by their pictures too.

    Args:
        words: what is looked for.
        settings: where Redis and the blobs are.
        space: what captions and pictures are compared in; None where there is none.
        count: how many, at most.

    Returns:
        The best first; those that fit not at all are left out.

    Raises:
        QueueUnavailable: Redis does not answer.
    """
    with connect(redis_url(settings), PATIENCE) as server:
        jobs = Jobs.from_settings(server, settings)
        blobs = Blobs(settings.blob_url, settings.staging)
        moments = list(moments_of_jobs(jobs, blobs))
    best = [ranked.moment for ranked in rank(words, moments, space, LOOKED_AT * count)]
    return rank(words, best if space is None else _with_vectors(best, space), space, count)


def moments_of_jobs(jobs: Jobs, blobs: Blobs) -> Iterator[Moment]:
    """Yields the moments of each job that has succeeded and whose result is kept, the last one's first."""
    with unavailable_if_away():
        ids = jobs.server.zrevrange(jobs.keys.expiry, 0, MOST - 1)
    for job_id in ids:
        try:
            job = jobs.get(str(job_id))
            moments = [] if job is None or job.state != "succeeded" else _moments(job, blobs)
        except RecordUnreadable:
            continue  # it is among the dead letters
        yield from moments


def _moments(job: Job, blobs: Blobs) -> list[Moment]:
    document = document_of(job, blobs)
    if document.segments is None:
        whole = _whole(job, document, blobs)
        return [] if whole is None else [whole]
    return [
        Moment(
            source=f"{document.filename or 'job'} {job.id}",
            start=each.start,
            end=each.end,
            time=each.representative,
            caption=each.caption,
            vector=None,
            picture=partial(_picture, blobs, frame_key(job.results, number)),
        )
        for number, each in enumerate(document.segments)
    ]


def _whole(job: Job, document: JobDocument, blobs: Blobs) -> Moment | None:
    if not document.caption or not document.sampled or document.media is None:
        return None
    middle = len(document.sampled) // 2
    return Moment(
        source=f"{document.filename or 'job'} {job.id}",
        start=0.0,
        end=document.media.duration or 0.0,
        time=document.sampled[middle],
        caption=document.caption,
        vector=None,
        picture=partial(_picture, blobs, f"{job.results}/frames/{middle}.jpg"),
    )


def _picture(blobs: Blobs, key: str) -> Image.Image:
    """Reads the frame; a grey one where the result has expired since."""
    try:
        return Image.open(io.BytesIO(blobs.read(key))).convert("RGB")
    except BlobMissingError:
        return Image.new("RGB", (320, 180), "grey")


def _with_vectors(moments: Sequence[Moment], space: SemanticSpace) -> list[Moment]:
    vectors = space.pictures([np.asarray(moment.picture(), np.uint8) for moment in moments])
    return [replace(moment, vector=vector) for moment, vector in zip(moments, vectors, strict=True)]
