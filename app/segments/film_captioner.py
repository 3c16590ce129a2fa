"""Captions whole films by their segments: resumes where another run ended, joins what is alike, sums up.

caption_segments    new segments, one after the other       app/segments/caption_segments.py
FilmJournal         what is known already                   app/segments/journal.py
join_alike          neighbours that say the same            app/segments/neighbours.py
summarize           one line about the film                 app/segments/summary.py
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path

from app.documents.job import Media, Model, Note
from app.documents.segments import FilmDocument, SegmentDocument, on_film_clock
from app.errors import UsageError
from app.jobs.options import CaptionOptions
from app.segments.caption_segments import Ended, SegmentCaption, SegmentEngine, caption_segments
from app.segments.journal import FilmJournal, KnownSegment, film_key, open_journal
from app.segments.neighbours import SemanticSpace, join_alike
from app.segments.summary import summarize
from app.settings import Settings
from app.terminal import clock, printable
from extractors.decoder.decoder import Decoder
from extractors.files import write_path
from extractors.media.request import Limits, Video
from extractors.shots.segment import SegmentOptions
from models.caption import AttentionDocument

TIME_DIGITS = 6


@dataclass(eq=False)
class FilmCaptioner:
    """Captions films in one way, and keeps what is known of each."""

    #: Loads what writes captions; called once, when a segment is to be captioned: done films need none.
    load_engine: Callable[[], SegmentEngine]
    settings: Settings
    options: CaptionOptions
    segments: SegmentOptions  #: how films are cut
    weights: Sequence[str]  #: what captions depend on beside the options: names and digests of captioners
    #: Loads the semantic embedding, None where there is none; called once, after the first segment.
    load_space: Callable[[], SemanticSpace | None]
    summary: bool = True  #: whether the film has one

    def caption(self, film: Path, show: Callable[[SegmentDocument], object] = lambda _: None) -> FilmDocument:
        """Captions what an earlier run has not, and returns the film's document, its neighbours joined.

        ``show`` is called with each segment on the clock of players, before it is kept: what it raises ends
        the run. Those from an earlier run come first. What was known before an error stays in the journal.

        Raises leaves of MediaError, JobFailure where the engine cannot caption, UsageError where there is no
        such file.
        """
        with open_journal(self.settings.data / "segments", self._key(film)) as journal:
            for each in journal.segments:
                show(each.on_players_clock)
            if journal.end is None:
                with Decoder(self.settings.decoder) as decoder:
                    self._caption_rest(film, journal, decoder, show)
            assert journal.end is not None
            segments = join_alike(journal.segments, self.space)
            return journal.end.model_copy(update={"file": write_path(film), "segments": segments})

    @cached_property
    def engine(self) -> SegmentEngine:
        return self.load_engine()

    @cached_property
    def space(self) -> SemanticSpace | None:
        return self.load_space()

    @property
    def limits(self) -> Limits:
        return Limits(seconds=self.settings.decode_seconds, memory=self.settings.decode_memory)

    def known(self, film: Path) -> list[KnownSegment]:
        """Reads what an earlier run left in the journal, with the pictures' vectors."""
        with open_journal(self.settings.data / "segments", self._key(film)) as journal:
            return journal.segments

    def _caption_rest(
        self, film: Path, journal: FilmJournal, decoder: Decoder, show: Callable[[SegmentDocument], object]
    ) -> None:
        model: Model | None = None
        captions = Ended(
            caption_segments(
                film,
                self.engine,
                self.options,
                self.segments,
                decoder,
                start_after=journal.last_end,
                limits=self.limits,
                batch=self.settings.batch_jobs,
            )
        )
        for each in captions:
            model = each.answer.answer.model
            finished = KnownSegment(segment_document(each), first_picture=each.first_picture)
            show(finished.on_players_clock)  # before the first one waits for the networks of the embedding
            picture = None if self.space is None else self.space.pictures([each.picture])[0]
            journal.append(replace(finished, picture=picture))
        journal.finish(self._end(film, journal, decoder, captions.value, model))

    def _end(
        self, film: Path, journal: FilmJournal, decoder: Decoder, video: Video, model: Model | None
    ) -> FilmDocument:
        documents, summary = join_alike(journal.segments, self.space), None
        if self.summary and documents:
            summary = summarize(film, documents, self.engine, self.options, decoder, self.limits)
        return FilmDocument(
            file=write_path(film),
            segments=[],
            media=Media.model_validate(video.media()),
            warnings=[Note(**asdict(warning)) for warning in video.warnings],
            model=model,
            summary=summary,
        )

    def _key(self, film: Path) -> str:
        try:
            return film_key(
                film,
                options=self.options.model_dump(mode="json"),
                segments=asdict(self.segments),
                weights=list(self.weights),
                summary=self.summary,
            )
        except OSError as error:
            raise UsageError(f"The file {film} cannot be read: {error.strerror}.") from error


def segment_document(each: SegmentCaption) -> SegmentDocument:
    """Makes the segment's JSON, all times on the film's clock."""
    attention = each.answer.attention
    segment, captions = each.segment, each.answer.answer.captions or []
    return SegmentDocument(
        start=segment.start,
        end=segment.end,
        representative=segment.representative,
        caption=captions[0].text,
        captions=captions,
        sampled=[round(float(time), TIME_DIGITS) for time in each.sampled],
        attention=None
        if attention is None
        else on_film_clock(AttentionDocument.model_validate_json(attention), segment.start),
    )


def follow_film(
    film: Path, captioner: FilmCaptioner, name: str, say: Callable[[str], object]
) -> FilmDocument:
    """Captions a film and says so in lines for people: each segment as it is known, then what it is about.

    Args:
        name: stands before each line.
        say: is called with each line.

    Raises:
        MediaError, JobFailure, UsageError: as ``FilmCaptioner.caption``.
    """

    def show(segment: SegmentDocument) -> None:
        say(printable(f"{name}{clock(segment.start)} {clock(segment.end)} {segment.caption}"))

    document = captioner.caption(film, show)
    if document.summary and len(document.segments) > 1:
        say(printable(f"{name}in short: {document.summary}"))
    return document
