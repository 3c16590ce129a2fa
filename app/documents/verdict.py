"""Declares what people say of captions, and how it is kept with a job, for judging and training."""

import time
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from app.documents.job import Document, document_of
from app.jobs.blobs import BlobMissingError, Blobs
from app.jobs.job import Job

LONGEST_CORRECTION = 500  #: characters
Mark = Literal["right", "partly", "wrong"]
Sentence = Annotated[str, StringConstraints(strip_whitespace=True, max_length=LONGEST_CORRECTION)]


class NewVerdict(Document):
    """Is what a person says of a caption."""

    verdict: Mark
    correction: Sentence = Field("", description="What the caption should be, where it is not right.")


class Verdict(NewVerdict):
    """Is what was said of one caption, and of which; a line of the export."""

    job: str
    file: str = Field(description="The video's name.")
    captioner: str | None = None
    caption: str = Field(description="That was judged.")
    time: float = Field(description="Unix, when it was said.")
    request: str | None = Field(None, description="The `Idempotency-Key` that it was sent with.")

    @property
    def true_caption(self) -> str:
        """The sentence that a person holds for right; empty where there is none."""
        return self.caption if self.verdict == "right" else self.correction


def keep_verdict(job: Job, judgement: NewVerdict, blobs: Blobs, request: str | None = None) -> Verdict:
    """Keeps a verdict beside the job's results, which it goes with; an earlier one with the same key stays.

    Args:
        job: that has succeeded.
        judgement: of its best caption.
        request: the key by which one that is sent again is known.
    """
    for earlier in verdicts_of(job, blobs) if request else ():
        if earlier.request == request:
            return earlier
    document = document_of(job, blobs)
    verdict = Verdict(
        **judgement.model_dump(),
        job=job.id,
        file=document.filename or "",
        captioner=document.model.captioner if document.model else None,
        caption=document.caption or "",
        time=round(time.time(), 3),
        request=request,
    )
    blobs.write(_key(job), (_read(job, blobs) + verdict.model_dump_json() + "\n").encode())
    return verdict


def verdicts_of(job: Job, blobs: Blobs) -> list[Verdict]:
    """Lists what was said of a job's caption, the first first."""
    return [Verdict.model_validate_json(line) for line in _read(job, blobs).splitlines()]


def _key(job: Job) -> str:
    return f"{job.results}/verdicts.jsonl"


def _read(job: Job, blobs: Blobs) -> str:
    try:
        return blobs.read(_key(job)).decode()
    except BlobMissingError:
        return ""
