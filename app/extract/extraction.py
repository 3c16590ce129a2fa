"""One process's share of ``extract``: extractors loaded once, then video after video, each decoded once."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from types import TracebackType
from typing import Self

import torch

from app.extract.inputs import Input
from app.extract.plan import (
    CannotWrite,
    ExtractError,
    ExtractionOutcome,
    ExtractionPlan,
    ExtractorFault,
    Failure,
    form_of,
)
from app.extract.predictions import predictions
from app.terminal import printable
from extractors.decoder.decoder import Decoder
from extractors.engines.engine_choice import choose_device
from extractors.extraction.extract_videos import ExtractedVideo, extract_videos
from extractors.extraction.feature_files import FeaturesDamaged, FeatureSpec, SavedFeatures, VideoSource
from extractors.extractor import OLDEST, AnyExtractor, create
from extractors.features import Stream
from extractors.media.errors import MediaError, MissingFile
from extractors.windows import Windows

log = logging.getLogger(__name__)

AHEAD = 2  #: decoders in turns, so that the next video is being read while the networks look at this one


@dataclass(frozen=True, eq=False)
class _Todo:
    """One video before it is described. kept: features that are there and good. reasons: extractor → why
    features that are there are not."""

    video: Input
    source: VideoSource
    kept: Mapping[str, SavedFeatures]
    reasons: Mapping[str, str]


class VideoExtraction:
    """Describes videos as the plan says. A context manager: it holds decoders.

    Raises UnknownExtractor, WeightsError, ImportError, ValueError where an extractor cannot be made.
    """

    def __init__(self, plan: ExtractionPlan) -> None:
        self._plan, self._form = plan, form_of(plan.form)
        torch.set_num_threads(plan.settings.threads)
        self._extractors = {name: self._extractor(name) for name in plan.extractors}
        self._tags = tags(self._extractors)
        self._decoders = [Decoder(plan.settings.decoder) for _ in range(AHEAD)]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for decoder in self._decoders:
            decoder.close()

    def describe(self, videos: Iterable[Input]) -> Iterator[ExtractionOutcome]:
        """Writes what is not there yet; whatever is wrong with one video is in its outcome."""
        for missing, group in groupby(map(self._looked_at, videos), self._missing):
            if missing:
                yield from self._make(missing, group)
            else:
                yield from (
                    each if isinstance(each, ExtractionOutcome) else self._outcome(each, {}) for each in group
                )

    def _looked_at(self, video: Input) -> _Todo | ExtractionOutcome:
        try:
            source = VideoSource.of(video.file)
        except OSError as error:
            missing = MissingFile(f"{video.file.name} cannot be read: {error.strerror}.")
            return ExtractionOutcome(video.file, error=Failure.of(missing))
        kept: dict[str, SavedFeatures] = {}
        reasons: dict[str, str] = {}
        for name in self._tags:
            found = self._reusable_features(name, video, source)
            if isinstance(found, SavedFeatures):
                kept[name] = found
            elif found is not None:
                reasons[name] = found
        return _Todo(video, source, kept, reasons)

    def _reusable_features(self, name: str, video: Input, source: VideoSource) -> SavedFeatures | str | None:
        """Features that are there, whole, and made as they would be now; or why not; None where none are."""
        folder, tag = self._plan.folder(name), self._tags[name]
        if not self._form.main_file(folder, video.name).exists():
            return None
        try:
            found = self._form.read(folder, video.name)
        except FeaturesDamaged as error:
            return str(error)
        if found.tag.spec_hash != tag.spec_hash:
            return "; ".join(tag.differences(found.tag))
        return found if found.source.sha256 == source.sha256 else "the video has changed"

    def _missing(self, todo: _Todo | ExtractionOutcome) -> tuple[str, ...]:
        if isinstance(todo, ExtractionOutcome):
            return ()
        return tuple(name for name in self._extractors if name not in todo.kept)

    def _make(
        self, names: tuple[str, ...], group: Iterator[_Todo | ExtractionOutcome]
    ) -> Iterator[ExtractionOutcome]:
        """Describes videos that lack the same features, decoded ahead and batched together."""
        running: deque[_Todo] = deque()

        def files() -> Iterator[str]:
            for todo in group:
                assert isinstance(todo, _Todo)
                running.append(todo)
                yield str(todo.video.file)

        needed = self._with_inputs(names)
        for _, described in extract_videos(self._decoders, files(), needed, self._plan.limits):
            yield self._written(running.popleft(), names, described)

    def _with_inputs(self, names: Collection[str]) -> list[AnyExtractor]:
        """The extractors, and those whose streams they take."""
        wanted = {*names, *(each for name in names for each in self._tags[name].inputs)}
        return [extractor for name, extractor in self._extractors.items() if name in wanted]

    def _written(
        self, todo: _Todo, names: Collection[str], described: ExtractedVideo | Exception
    ) -> ExtractionOutcome:
        try:
            if isinstance(described, Exception):
                raise described
            built = {name: self._saved(name, todo.source, described) for name in names}
            for name, saved in built.items():
                self._form.write(self._plan.folder(name), todo.video.name, saved)
            return self._outcome(todo, built)
        except (MediaError, ExtractError) as error:
            return ExtractionOutcome(todo.video.file, error=Failure.of(error))
        except OSError as error:
            failure = CannotWrite(f"The features of {todo.video.file.name} cannot be written: {error}.")
            return ExtractionOutcome(todo.video.file, error=Failure.of(failure))
        except Exception as error:  # a network's own trouble with one video must not end all the others
            log.error("no features of %s", printable(str(todo.video.file)), exc_info=error)
            fault = ExtractorFault(f"An extractor failed: {type(error).__name__}: {error}.")
            return ExtractionOutcome(todo.video.file, error=Failure.of(fault))

    def _outcome(self, todo: _Todo, built: Mapping[str, SavedFeatures]) -> ExtractionOutcome:
        said = {**todo.kept, **built}
        lines = {name: predictions(saved.streams, saved.classes) for name, saved in said.items()}
        reported = [f"{name}: {lines[name]}" for name in self._extractors if lines[name] is not None]
        reported = reported or [f"{', '.join(self._extractors)}: names no classes"]
        return ExtractionOutcome(
            todo.video.file,
            written=tuple(built),
            kept=tuple(todo.kept),
            renewed=tuple(f"{name}: {reason}" for name, reason in todo.reasons.items()),
            predictions=tuple(reported) if self._plan.predictions else (),
        )

    def _saved(self, name: str, source: VideoSource, described: ExtractedVideo) -> SavedFeatures:
        windows = windows_of(self._extractors[name])
        rate = windows.extraction_fps if windows else None
        return SavedFeatures(
            tag=self._tags[name],
            source=source,
            media=described.video.media(),
            fps=rate or described.video.fps_average,
            streams=own_streams(name, described.streams, self._extractors),
            classes=getattr(self._extractors[name], "classes", None),
        )

    def _extractor(self, name: str) -> AnyExtractor:
        plan = self._plan
        return create(
            name,
            choose_device(plan.device),
            precision=plan.precision,
            threads=plan.settings.threads,
            cache=plan.settings.data / "cache",
            weights=plan.weights,
            windows=plan.windows,
        )


def tags(extractors: Mapping[str, AnyExtractor]) -> dict[str, FeatureSpec]:
    """The name tag of each extractor, with those of the extractors whose streams it takes."""
    found: dict[str, FeatureSpec] = {}
    for name, extractor in extractors.items():
        inputs = {}
        for stream in getattr(extractor, "needs_streams", ()):
            other = owner(stream, extractors)
            if other is not None:
                inputs[other] = FeatureSpec(
                    other, extractors[other].spec, windows_of(extractors[other])
                ).spec_hash
        found[name] = FeatureSpec(name, extractor.spec, windows_of(extractor), inputs)
    return found


def windows_of(extractor: AnyExtractor) -> Windows | None:
    """How it cuts videos; of sound no more is up to the user than how many rows there are at most."""
    windows = getattr(extractor, "windows", None)
    if isinstance(windows, Windows):
        return windows
    most = getattr(extractor, "most", None)
    return Windows(most=most) if isinstance(most, int) else None


def owner(stream: str, names: Iterable[str]) -> str | None:
    """The extractor that a stream is called after; streams called after none are the oldest extractor's."""
    called = [name for name in names if stream == name or stream.startswith(f"{name}_")]
    return max(called, key=len, default=OLDEST if stream in ("frames", "grid") else None)


def own_streams(name: str, streams: Mapping[str, Stream], names: Collection[str]) -> dict[str, Stream]:
    """The streams of one extractor out of those of several."""
    return {each: stream for each, stream in streams.items() if owner(each, names) == name}
