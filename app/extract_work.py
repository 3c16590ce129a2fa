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

from app.extract_inputs import Input
from app.extract_plan import CannotWrite, ExtractError, ExtractorFault, Failure, Outcome, Plan, form_of
from app.predictions import predictions
from app.terminal import printable
from extractors.decoder import Decoder
from extractors.describe import Described, describe_files
from extractors.device import chosen_device
from extractors.errors import MediaError, MissingFile
from extractors.extractor import OLDEST, AnyExtractor, create
from extractors.features import Stream
from extractors.saved import FeaturesDamaged, Saved, Source, Tag
from extractors.windows import Windows

log = logging.getLogger(__name__)

AHEAD = 2  #: decoders in turns, so that the next video is being read while the networks look at this one


@dataclass(frozen=True, eq=False)
class _Todo:
    """One video before it is described. kept: features that are there and good. reasons: extractor → why
    features that are there are not."""

    video: Input
    source: Source
    kept: Mapping[str, Saved]
    reasons: Mapping[str, str]


class Work:
    """Describes videos as the plan says. A context manager: it holds decoders.

    Raises UnknownExtractor, WeightsError, ImportError, ValueError where an extractor cannot be made.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan, self._form = plan, form_of(plan.form)
        torch.set_num_threads(plan.settings.threads)
        self._extractors = {name: self._made(name) for name in plan.extractors}
        self._tags = tags(self._extractors)
        self._decoders = [Decoder(plan.settings.decoder) for _ in range(AHEAD)]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for decoder in self._decoders:
            decoder.close()

    def describe(self, videos: Iterable[Input]) -> Iterator[Outcome]:
        """Writes what is not there yet; whatever is wrong with one video is in its outcome."""
        for missing, group in groupby(map(self._looked_at, videos), self._missing):
            if missing:
                yield from self._make(missing, group)
            else:
                yield from (each if isinstance(each, Outcome) else self._outcome(each, {}) for each in group)

    def _looked_at(self, video: Input) -> _Todo | Outcome:
        try:
            source = Source.of(video.file)
        except OSError as error:
            missing = MissingFile(f"{video.file.name} cannot be read: {error.strerror}.")
            return Outcome(video.file, error=Failure.of(missing))
        kept: dict[str, Saved] = {}
        reasons: dict[str, str] = {}
        for name in self._tags:
            found = self._look(name, video, source)
            if isinstance(found, Saved):
                kept[name] = found
            elif found is not None:
                reasons[name] = found
        return _Todo(video, source, kept, reasons)

    def _look(self, name: str, video: Input, source: Source) -> Saved | str | None:
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

    def _missing(self, todo: _Todo | Outcome) -> tuple[str, ...]:
        if isinstance(todo, Outcome):
            return ()
        return tuple(name for name in self._extractors if name not in todo.kept)

    def _make(self, names: tuple[str, ...], group: Iterator[_Todo | Outcome]) -> Iterator[Outcome]:
        """Describes videos that lack the same features, decoded ahead and batched together."""
        running: deque[_Todo] = deque()

        def files() -> Iterator[str]:
            for todo in group:
                assert isinstance(todo, _Todo)
                running.append(todo)
                yield str(todo.video.file)

        needed = self._with_inputs(names)
        for _, described in describe_files(self._decoders, files(), needed, self._plan.limits):
            yield self._written(running.popleft(), names, described)

    def _with_inputs(self, names: Collection[str]) -> list[AnyExtractor]:
        """The extractors, and those whose streams they take."""
        wanted = {*names, *(each for name in names for each in self._tags[name].inputs)}
        return [extractor for name, extractor in self._extractors.items() if name in wanted]

    def _written(self, todo: _Todo, names: Collection[str], described: Described | Exception) -> Outcome:
        try:
            if isinstance(described, Exception):
                raise described
            made = {name: self._saved(name, todo.source, described) for name in names}
            for name, saved in made.items():
                self._form.write(self._plan.folder(name), todo.video.name, saved)
            return self._outcome(todo, made)
        except (MediaError, ExtractError) as error:
            return Outcome(todo.video.file, error=Failure.of(error))
        except OSError as error:
            failure = CannotWrite(f"The features of {todo.video.file.name} cannot be written: {error}.")
            return Outcome(todo.video.file, error=Failure.of(failure))
        except Exception as error:  # a network's own trouble with one video must not end all the others
            log.error("no features of %s", printable(str(todo.video.file)), exc_info=error)
            fault = ExtractorFault(f"An extractor failed: {type(error).__name__}: {error}.")
            return Outcome(todo.video.file, error=Failure.of(fault))

    def _outcome(self, todo: _Todo, made: Mapping[str, Saved]) -> Outcome:
        said = {**todo.kept, **made}
        lines = {name: predictions(saved.streams, saved.classes) for name, saved in said.items()}
        told = [f"{name}: {lines[name]}" for name in self._extractors if lines[name] is not None]
        told = told or [f"{', '.join(self._extractors)}: names no classes"]
        return Outcome(
            todo.video.file,
            made=tuple(made),
            kept=tuple(todo.kept),
            renewed=tuple(f"{name}: {reason}" for name, reason in todo.reasons.items()),
            predictions=tuple(told) if self._plan.predictions else (),
        )

    def _saved(self, name: str, source: Source, described: Described) -> Saved:
        windows = windows_of(self._extractors[name])
        rate = windows.extraction_fps if windows else None
        return Saved(
            tag=self._tags[name],
            source=source,
            media=described.video.media(),
            fps=rate or described.video.fps_average,
            streams=own_streams(name, described.streams, self._extractors),
            classes=getattr(self._extractors[name], "classes", None),
        )

    def _made(self, name: str) -> AnyExtractor:
        plan = self._plan
        return create(
            name,
            chosen_device(plan.device),
            precision=plan.precision,
            threads=plan.settings.threads,
            cache=plan.settings.data / "cache",
            weights=plan.weights,
            windows=plan.windows,
        )


def tags(extractors: Mapping[str, AnyExtractor]) -> dict[str, Tag]:
    """The name tag of each extractor, with those of the extractors whose streams it takes."""
    found: dict[str, Tag] = {}
    for name, extractor in extractors.items():
        inputs = {}
        for stream in getattr(extractor, "needs_streams", ()):
            other = owner(stream, extractors)
            if other is not None:
                inputs[other] = Tag(other, extractors[other].spec, windows_of(extractors[other])).spec_hash
        found[name] = Tag(name, extractor.spec, windows_of(extractor), inputs)
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
