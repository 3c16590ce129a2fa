"""Declares the JSON of a film's segments."""

from collections.abc import Callable, Iterable
from typing import Self

from pydantic import Field

from app.documents.job import Document, JobDocument, Media, Model, Note, document_of, kept_segments
from app.errors import RecordUnreadable
from app.jobs.blobs import Blobs
from app.jobs.job import Job
from app.jobs.keeping.kept_segments import KeptSegments
from models.caption import AttentionDocument, ScoredCaption, Weights


class PlacedWord(Document):
    """Tells when and where a word of a caption is seen. Times are seconds of the film."""

    word: str
    start: float | None = Field(None, description="Null where it names nothing, or is all along.")
    end: float | None = None
    box: Weights | None = Field(None, description="Its place, where that is a box: x0 y0 x1 y1 in [0, 1].")

    def moved(self, seconds: float) -> Self:
        """Returns the same, so many seconds later."""
        if self.start is None or self.end is None:
            return self
        return self.model_copy(update={"start": self.start + seconds, "end": self.end + seconds})


class SegmentDocument(Document):
    """Describes one segment. Times are seconds of the film, from its first shown frame."""

    start: float = Field(ge=0)
    end: float = Field(ge=0)
    representative: float = Field(ge=0, description="When the frame is shown that stands for the segment.")
    caption: str
    captions: list[ScoredCaption] = Field(description="Best first; of the longest part, where parts merged.")
    sampled: list[float] = Field(default_factory=list, description="The frames that were looked at.")
    attention: AttentionDocument | None = None
    words: list[PlacedWord] | None = Field(None, description="Of the caption; null without attention.")
    merged: int = Field(1, ge=1, description="Neighbours that said the same and became this segment.")

    @property
    def duration(self) -> float:
        return self.end - self.start

    def moved(self, seconds: float) -> Self:
        """Returns the same, so many seconds later."""
        if not seconds:
            return self
        times = {name: getattr(self, name) + seconds for name in ("start", "end", "representative")}
        attention = None if self.attention is None else on_film_clock(self.attention, seconds)
        sampled = [round(time + seconds, 4) for time in self.sampled]
        words = self.words and [each.moved(seconds) for each in self.words]
        return self.model_copy(update={**times, "sampled": sampled, "attention": attention, "words": words})


class FilmDocument(Document):
    """Describes a film: its segments, and what it is about in one line.

    ``file``: its path as it was given. ``summary``: a caption of the segments' representative frames, as if
    they were a clip; null where it was not asked for.
    """

    file: str
    media: Media | None = None
    warnings: list[Note] = Field(default_factory=list)
    summary: str | None = None
    segments: list[SegmentDocument]
    model: Model | None = None

    @property
    def first_picture(self) -> float:
        """Seconds on the clock of players at which the first frame is shown."""
        return (self.media and self.media.first_picture) or 0.0

    def on_players_clock(self) -> Self:
        """Returns the film with all times of its segments as players count them."""
        zero = self.first_picture
        return self.model_copy(update={"segments": [each.moved(zero) for each in self.segments]})

    def with_words(self, attentions: Iterable[AttentionDocument | None]) -> Self:
        """Returns the film with its words' moments, read from each segment's attention where it has one."""
        segments = [
            segment if attention is None else segment.model_copy(update={"words": _place_words(attention)})
            for segment, attention in zip(self.segments, attentions, strict=True)
        ]
        return self.model_copy(update={"segments": segments})


def _place_words(attention: AttentionDocument) -> list[PlacedWord]:
    content = attention.content or [True] * len(attention.words)
    return [
        PlacedWord(word=word, start=place.start, end=place.end, box=place.box)
        if names and place.start is not None
        else PlacedWord(word=word)
        for word, place, names in zip(attention.words, attention.located, content, strict=True)
    ]


def film_of(job: Job, blobs: Blobs) -> FilmDocument:
    """Makes a film's document of a job, as far as it is; without segments it is one of the whole length.

    Raises RecordUnreadable.
    """
    document = document_of(job, blobs)
    kept = kept_segments(job, blobs)
    segments = [_whole(document)] if kept is None else _read_segments(job, kept, blobs)
    return FilmDocument(
        file=document.filename or job.id,
        media=document.media,
        warnings=document.warnings,
        summary=document.caption,
        segments=segments,
        model=document.model,
    )


def _read_segments(job: Job, kept: KeptSegments, blobs: Blobs) -> list[SegmentDocument]:
    try:
        return [SegmentDocument.model_validate(each) for each in kept.read(blobs)]
    except (ValueError, TypeError, KeyError) as error:
        raise RecordUnreadable(f"The segments of job {job.id} cannot be read.") from error


def _whole(document: JobDocument) -> SegmentDocument:
    sampled = document.sampled or [0.0]
    return SegmentDocument(
        start=0.0,
        end=(document.media and document.media.duration) or 0.0,
        representative=sampled[len(sampled) // 2],
        caption=document.caption or "",
        captions=document.captions or [],
        sampled=sampled,
    )


def on_film_clock(attention: AttentionDocument, start: float) -> AttentionDocument:
    """Moves the attention of a segment that begins at ``start`` (seconds) to the film's clock."""
    return on_other_clock(attention, lambda time: time + start)


def on_other_clock(attention: AttentionDocument, clock_of: Callable[[float], float]) -> AttentionDocument:
    """Changes all times of an attention from seconds of its clip to those of another clock."""

    def all_moved(spans: list[Weights]) -> list[Weights]:
        return [[round(clock_of(time), 4) for time in span] for span in spans]

    times = {"times": all_moved(attention.times), "parts": attention.parts and all_moved(attention.parts)}
    extras = [part.on_clock(clock_of) for part in attention.extras]
    return attention.model_copy(update={**times, "extras": extras})
