"""Makes moments of a service's jobs: of each segment of a film, or of a clip, whose middle frame shows it."""

import io
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import islice

import numpy as np
from PIL import Image

from app.documents.job import document_of
from app.errors import RecordUnreadable
from app.jobs.blobs import BlobMissingError, Blobs
from app.jobs.job import Job
from app.jobs.job_index import JobFilter
from app.jobs.job_store import Jobs
from app.jobs.keeping.kept_segments import frame_key
from app.jobs.redis_client import connect, redis_url
from app.search.moments import Found, Moment, rank
from app.segments.neighbours import SemanticSpace
from app.settings import Settings

PATIENCE = 2.0  #: seconds of trying again while Redis is away
MOST = 10_000  #: jobs that are looked at, the newest
LOOKED_AT = 4  #: moments of which the pictures are compared, for each that is shown


def search_service(words: str, settings: Settings, space: SemanticSpace | None, count: int) -> list[Found]:
    """Ranks the jobs of the service of the settings. Raises QueueUnavailable.

    Args:
        words, space, count: as of ``search_jobs``.
        settings: where Redis and the blobs are.
    """
    with connect(redis_url(settings), PATIENCE) as server:
        blobs = Blobs(settings.blob_url, settings.staging)
        return search_jobs(words, moments_of_jobs(Jobs.from_settings(server, settings), blobs), space, count)


def search_jobs(
    words: str, moments: Iterable[Moment], space: SemanticSpace | None, count: int
) -> list[Found]:
    """Ranks moments of jobs by captions, and the best by pictures too. Raises QueueUnavailable.

    Args:
        moments: of ``moments_of_jobs``.
        space: what captions and pictures are compared in; None where there is none.
        count: how many, at most.
    """
    best = [ranked.moment for ranked in rank(words, list(moments), space, LOOKED_AT * count)]
    return rank(words, best if space is None else _with_vectors(best, space), space, count)


def moments_of_jobs(
    jobs: Jobs, blobs: Blobs, owner: str | None = None, most: int = MOST, ids: Collection[str] | None = None
) -> Iterator[Moment]:
    """Yields the moments of each job that has succeeded and whose result is kept, newest jobs first.

    Args:
        owner: whose jobs alone; None for all.
        most: jobs that are looked at.
        ids: of jobs whose results alone are read; None for all.
    """
    for job in islice(jobs.index.all(JobFilter(states=["succeeded"], owner=owner)), most):
        if ids is None or job.id in ids:
            with suppress(RecordUnreadable):  # it is among the dead letters
                yield from _moments(job, blobs)


def _moments(job: Job, blobs: Blobs) -> list[Moment]:
    document = document_of(job, blobs)
    make = partial(Moment, source=f"{document.filename or 'job'} {job.id}", vector=None, job=job.id)
    if document.segments is not None:
        return [
            make(
                start=each.start,
                end=each.end,
                time=each.representative,
                caption=each.caption,
                picture=partial(_picture, blobs, frame_key(job.results, number)),
                address=f"/jobs/{job.id}/segments/{number}/frame.jpg",
            )
            for number, each in enumerate(document.segments)
        ]
    if not document.caption or not document.sampled or document.media is None:
        return []
    middle, zero = len(document.sampled) // 2, document.media.first_picture or 0.0
    whole = make(
        start=zero,
        end=zero + (document.media.duration or 0.0),
        time=zero + document.sampled[middle],
        caption=document.caption,
        picture=partial(_picture, blobs, f"{job.results}/frames/{middle}.jpg"),
        address=f"/jobs/{job.id}/frames/{middle}.jpg",
    )
    return [whole]


def _picture(blobs: Blobs, key: str) -> Image.Image:
    """Reads the frame; a grey one where the result has expired since."""
    try:
        return Image.open(io.BytesIO(blobs.read(key))).convert("RGB")
    except BlobMissingError:
        return Image.new("RGB", (320, 180), "grey")


def _with_vectors(moments: Sequence[Moment], space: SemanticSpace) -> list[Moment]:
    vectors = space.pictures([np.asarray(moment.picture(), np.uint8) for moment in moments])
    return [replace(moment, vector=vector) for moment, vector in zip(moments, vectors, strict=True)]
