"""From a command line's words to films, and to what captions them.

Models are loaded when the first film needs them.
"""

from __future__ import annotations

import glob
from collections.abc import Sequence
from functools import cached_property, partial
from pathlib import Path

from app.errors import CaptionerUnavailable, JobFailure, UsageError, sentence
from app.extract.inputs import Input, find_videos
from app.jobs.options import CaptionOptions
from app.pipeline.engine import Engine
from app.pipeline.engine_protocol import EngineAnswer, Report
from app.pipeline.installed_captioners import captioner_choices
from app.segments.film_captioner import FilmCaptioner
from app.segments.semantic_space import load_semantic_space
from app.settings import Settings
from extractors.features import Frames
from extractors.files import sha256_of
from extractors.media.request import DecodeRequest
from extractors.shots.segment import SegmentOptions
from models.checkpoint import CheckpointError
from models.checkpoint_folder import available, embedding_path
from models.feature_sources.stream_sets import UnknownStreamSet


class LazyEngine:
    """An engine that is loaded when it is first asked: films that are done need none.

    Its methods raise EngineStartFailed, and UsageError for a stream set that there is not.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def request_for(self, options: CaptionOptions) -> DecodeRequest:
        """The frames that the extractors of the options' captioner want."""
        return self._engine.request_for(options)

    def describe_and_caption(
        self, videos: Sequence[Frames], options: Sequence[CaptionOptions], report: Report
    ) -> list[EngineAnswer | JobFailure]:
        """As ``Engine`` has it."""
        return self._engine.describe_and_caption(videos, options, report)

    @cached_property
    def _engine(self) -> Engine:
        try:
            return Engine(self._settings)
        except UnknownStreamSet as error:
            raise UsageError(sentence(str(error))) from error


def load_film_captioner(
    settings: Settings, options: CaptionOptions, segments: SegmentOptions, engine: Engine | None = None
) -> FilmCaptioner:
    """A film captioner whose journals are told apart by the weights that are there.

    Args:
        settings: of all.
        options: of the captioner.
        segments: how films are cut.
        engine: one that is loaded already.

    Raises:
        UsageError: the options name a captioner that there is not, or weights are damaged.
    """
    return FilmCaptioner(
        engine=engine or LazyEngine(settings),
        settings=settings,
        options=options,
        segments=segments,
        weights=_what_decides(settings, options),
        load_space=partial(load_semantic_space, settings),
    )


def _what_decides(settings: Settings, options: CaptionOptions) -> list[str]:
    """Of the captioner that will write, or of its members: names and digests, and what they look at."""
    try:
        choices = captioner_choices(settings.weights, settings.captioner)
        names = choices.resolve(options).writers if choices.alone else ()
    except CaptionerUnavailable as failure:  # which lists those that there are
        raise UsageError(str(failure)) from failure
    except JobFailure as failure:
        raise UsageError(f"{failure} {failure.hint}") from failure
    except CheckpointError as error:
        raise UsageError(sentence(str(error))) from error
    files = available(settings.weights)
    known = [f"{name} {sha256_of(files[name])}" for name in names]
    embedding = embedding_path(settings.weights)
    known += [] if embedding is None else [f"embedding {sha256_of(embedding)}"]
    return [*known, f"frames {settings.frames}", f"streams {settings.streams}"]


def segment_options(text: str, shortest: float = 2.0, longest: float = 20.0) -> SegmentOptions:
    """From the command line's words. Raises UsageError."""
    try:
        return SegmentOptions.parse(text, shortest, longest)
    except ValueError as error:
        raise UsageError(sentence(str(error))) from error


def find_films(paths: Sequence[Path], out: Path | None) -> list[Input]:
    """Videos: files, folders searched to the bottom, and patterns that the shell has not replaced.

    Args:
        paths: as they were given.
        out: folder of results, which is not searched.

    Raises:
        UsageError: there is no video.
    """
    return find_videos([each for path in paths for each in _expanded(path)], out)


def _expanded(path: Path) -> list[Path]:
    if path.exists() or not glob.has_magic(str(path)):
        return [path]
    return sorted(Path(each) for each in glob.iglob(str(path), recursive=True)) or [path]
