"""Declares the JSON of a film's segments."""

from __future__ import annotations

from pydantic import Field

from app.documents.job import Document, Media, Model, Note
from models.caption import AttentionDocument, ChosenMoment, ScoredCaption, Weights


class SegmentDocument(Document):
    """Tells of one segment. Times are seconds of the film, from its first shown frame."""

    start: float = Field(ge=0)
    end: float = Field(ge=0)
    representative: float = Field(ge=0, description="When the frame is shown that stands for the segment.")
    caption: str
    captions: list[ScoredCaption] = Field(description="Best first; of the longest part, where parts merged.")
    sampled: list[float] = Field(default_factory=list, description="The frames that were looked at.")
    attention: AttentionDocument | None = None
    merged: int = Field(1, ge=1, description="Neighbours that said the same and became this segment.")

    @property
    def duration(self) -> float:
        return self.end - self.start


class FilmDocument(Document):
    """Tells of a film: its segments, and what it is about in one line.

    ``file``: its path as it was given. ``summary``: a caption of the segments' representative frames, as if
    they were a clip; null where nobody asked for it.
    """

    file: str
    media: Media | None = None
    warnings: list[Note] = Field(default_factory=list)
    summary: str | None = None
    segments: list[SegmentDocument]
    model: Model | None = None


def on_film_clock(attention: AttentionDocument, start: float) -> AttentionDocument:
    """Moves the attention of a segment that begins at ``start`` (seconds) to the film's clock."""
    extras = attention.extras
    moved = {
        "selected": extras.selected and [[_later(each, start) for each in row] for row in extras.selected],
        "default_key_frame": extras.default_key_frame and _later(extras.default_key_frame, start),
        "key_frame": extras.key_frame and _later(extras.key_frame, start),
    }
    times = {
        "times": _all_later(attention.times, start),
        "parts": attention.parts and _all_later(attention.parts, start),
    }
    return attention.model_copy(update={**times, "extras": extras.model_copy(update=moved)})


def _later(moment: ChosenMoment, start: float) -> ChosenMoment:
    return moment.model_copy(update={"time": round(moment.time + start, 4)})


def _all_later(spans: list[Weights], start: float) -> list[Weights]:
    return [[round(time + start, 4) for time in span] for span in spans]


def clock(seconds: float) -> str:
    """Writes seconds as 0:00:04.5, however many."""
    tenths = round(seconds * 10)
    return f"{tenths // 36000}:{tenths // 600 % 60:02d}:{tenths // 10 % 60:02d}.{tenths % 10}"
