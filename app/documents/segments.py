"""The JSON of a film's segments: for the command line, and whatever else tells of films."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from app.documents.job import Document, Media, Model, Note, ScoredCaption


class SegmentDocument(Document):
    """One segment. Times are seconds of the film, from its first shown frame."""

    start: float = Field(ge=0)
    end: float = Field(ge=0)
    representative: float = Field(ge=0, description="When the frame is shown that stands for the segment.")
    caption: str
    captions: list[ScoredCaption] = Field(description="Best first; of the longest part, where parts merged.")
    sampled: list[float] = Field(default_factory=list, description="The frames that were looked at.")
    attention: dict[str, Any] | None = Field(
        None, description="As GET /jobs/{id}/attention has it; its clock begins with the segment."
    )
    merged: int = Field(1, ge=1, description="Neighbours that said the same and became this segment.")

    @property
    def duration(self) -> float:
        return self.end - self.start


class FilmDocument(Document):
    """A film's segments, and what it is about in one line.

    ``file``: its path as it was given. ``summary``: a caption of the segments' representative frames, as if
    they were a clip; null where nobody asked for it.
    """

    file: str
    media: Media | None = None
    warnings: list[Note] = Field(default_factory=list)
    summary: str | None = None
    segments: list[SegmentDocument]
    model: Model | None = None
