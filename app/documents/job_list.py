"""Declares the JSON of a list of jobs: a summary of each, small enough for hundreds."""

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from app.documents.job import Document, Fault, JobProgress, progress_of
from app.jobs.job import Job

CAPTION_LENGTH = 300  #: characters of a caption that a summary has


class JobSummary(JobProgress):
    """Summarises one job in a list; ``GET /jobs/{id}`` has the rest."""

    caption: str | None = Field(None, description=f"Its first {CAPTION_LENGTH} characters.")
    captioner: str | None = Field(None, description="Who writes, or wrote. Null where none is chosen yet.")
    duration: float | None = Field(None, description="Seconds of the video.")
    error: Fault | None = None
    metadata: dict[str, Any] | None = None
    batch: str | None = None


class JobList(Document):
    """Holds a page of jobs, newest first."""

    jobs: list[JobSummary] = Field(description="May be fewer than the limit while there is a next page.")
    next: str | None = Field(description="The `cursor` of the next page. Null on the last one.")


def summary_of(job: Job) -> JobSummary:
    """Summarises a job from its record alone; what it does not tell, or not readably, is null."""
    answer = job.answer
    caption, media, model = answer.get("caption"), _members(answer, "media"), _members(answer, "model")
    captioner = model.get("captioner") or job.options.captioner
    duration = media.get("duration")
    error = job.error and Fault(**{name: str(job.error.get(name, "")) for name in Fault.model_fields})
    return JobSummary(
        **progress_of(job),
        caption=caption[:CAPTION_LENGTH] if isinstance(caption, str) else None,
        captioner=captioner if isinstance(captioner, str) else None,
        duration=duration if isinstance(duration, int | float) else None,
        error=error,
        metadata=job.submission.metadata,
        batch=job.submission.batch,
    )


def _members(answer: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    members = answer.get(name)
    return members if isinstance(members, dict) else {}
