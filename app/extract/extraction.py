"""Does one process's share of ``extract``: loads extractors once, extracts features of video after video,
each decoded once, and names the likeliest classes."""

import logging
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Self

import torch
from torch import Tensor

from app.extract.inputs import InputVideo, local_copy
from app.extract.plan import (
    CannotWrite,
    ExtractError,
    ExtractionOutcome,
    ExtractionPlan,
    ExtractorFault,
    choose_format,
)
from app.fetching.fetch import FetchLimits
from app.terminal import printable
from extractors.decoder.decoder import Decoder
from extractors.engines.engine_choice import choose_device
from extractors.errors import ReelwordError
from extractors.extractor import OLDEST, AnyExtractor, create
from extractors.features import Stream
from extractors.media.errors import MediaError, MissingFile
from extractors.video_features.extract_videos import ExtractedVideo, extract_videos
from extractors.video_features.feature_files import (
    FeaturesDamaged,
    FeatureSpec,
    SavedFeatures,
    VideoSource,
    path_digest,
)
from extractors.windows import WindowOptions, Windows

log = logging.getLogger(__name__)

MOST_PREDICTIONS = 5
AHEAD = 2  #: decoders in turns, so that the next video is being read while the networks look at this one


@dataclass(frozen=True, eq=False)
class _Todo:
    """Holds one video before its features are extracted."""

    video: InputVideo
    path: Path  #: on this machine
    copied: ExitStack  #: removes it where it was copied here
    source: VideoSource
    kept: Mapping[str, SavedFeatures]  #: features that are there and good
    reasons: Mapping[str, str]  #: extractor → why features that are there are not good


class VideoExtraction:
    """Extracts features of videos as the plan says. A context manager: it holds decoders.

    Raises UnknownExtractor, WeightsError, ImportError, ValueError where an extractor cannot be made.
    """

    def __init__(self, plan: ExtractionPlan) -> None:
        self._plan, self._form = plan, choose_format(plan.form)
        self._fetch_limits = FetchLimits.of(plan.settings)
        torch.set_num_threads(plan.settings.threads)
        self._extractors = {name: self._load_extractor(name) for name in plan.extractors}
        self._tags = make_tags(self._extractors)
        self._decoders = [Decoder(plan.settings.decoder) for _ in range(AHEAD)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        for decoder in self._decoders:
            decoder.close()

    def extract(self, videos: Iterable[InputVideo]) -> Iterator[ExtractionOutcome]:
        """Writes what is not there yet; whatever is wrong with one video is in its outcome."""
        for missing, group in groupby(map(self._look_at, videos), self._missing):
            if missing:
                yield from self._make(missing, group)
            else:
                yield from (
                    each if isinstance(each, ExtractionOutcome) else self._outcome(each, {}) for each in group
                )

    def _look_at(self, video: InputVideo) -> _Todo | ExtractionOutcome:
        copied = ExitStack()
        try:
            path = copied.enter_context(local_copy(video.place, self._fetch_limits))
            source = replace(VideoSource.of(path), file=video.file.name, path=path_digest(video.file))
        except OSError as error:
            missing = MissingFile(f"{video.file.name} cannot be read: {error.strerror}.")
            return ExtractionOutcome.failed(video.place, missing)
        except ReelwordError as error:
            return ExtractionOutcome.failed(video.place, error)
        there = {name: self._reusable_features(name, video, source) for name in self._tags}
        kept = {name: each for name, each in there.items() if isinstance(each, SavedFeatures)}
        reasons = {name: each for name, each in there.items() if isinstance(each, str)}
        return _Todo(video, path, copied, source, kept, reasons)

    def _reusable_features(
        self, name: str, video: InputVideo, source: VideoSource
    ) -> SavedFeatures | str | None:
        """Reads features that are whole and made as they would be now, or says why not."""
        folder, tag = self._plan.folder(name), self._tags[name]
        if not self._form.main_file(folder, video.name).exists():
            return None
        try:
            features = self._form.read(folder, video.name)
        except FeaturesDamaged as error:
            return str(error)
        if features.tag.spec_hash != tag.spec_hash:
            return "; ".join(tag.differences(features.tag))
        return features if features.source.sha256 == source.sha256 else "the video has changed"

    def _missing(self, todo: _Todo | ExtractionOutcome) -> tuple[str, ...]:
        if isinstance(todo, ExtractionOutcome):
            return ()
        return tuple(name for name in self._extractors if name not in todo.kept)

    def _make(
        self, names: tuple[str, ...], group: Iterator[_Todo | ExtractionOutcome]
    ) -> Iterator[ExtractionOutcome]:
        """Extracts what videos lack, all the same features, decoded ahead and batched together."""
        running: deque[_Todo] = deque()

        def files() -> Iterator[str]:
            for todo in group:
                assert isinstance(todo, _Todo)
                running.append(todo)
                yield str(todo.path)

        taken = {*names, *(each for name in names for each in self._tags[name].inputs)}
        needed = [extractor for name, extractor in self._extractors.items() if name in taken]
        for _, extracted in extract_videos(self._decoders, files(), needed, self._plan.limits):
            yield self._write(running.popleft(), names, extracted)

    def _write(
        self, todo: _Todo, names: Collection[str], extracted: ExtractedVideo | Exception
    ) -> ExtractionOutcome:
        todo.copied.close()
        try:
            if isinstance(extracted, Exception):
                raise extracted
            built = {name: self._to_saved(name, todo.source, extracted) for name in names}
            for name, saved in built.items():
                self._form.write(self._plan.folder(name), todo.video.name, saved)
            return self._outcome(todo, built)
        except (MediaError, ExtractError) as error:
            return ExtractionOutcome.failed(todo.video.place, error)
        except OSError as error:
            failure = CannotWrite(f"The features of {todo.video.file.name} cannot be written: {error}.")
            return ExtractionOutcome.failed(todo.video.place, failure)
        except Exception as error:  # a network that fails on one video must not end all the others
            log.error("no features of %s", printable(todo.video.place), exc_info=error)
            fault = ExtractorFault(f"An extractor failed: {type(error).__name__}: {error}.")
            return ExtractionOutcome.failed(todo.video.place, fault)

    def _outcome(self, todo: _Todo, built: Mapping[str, SavedFeatures]) -> ExtractionOutcome:
        todo.copied.close()
        features = {**todo.kept, **built}
        lines = {name: format_predictions(saved.streams, saved.classes) for name, saved in features.items()}
        reported = [f"{name}: {lines[name]}" for name in self._extractors if lines[name] is not None]
        reported = reported or [f"{', '.join(self._extractors)}: names no classes"]
        return ExtractionOutcome(
            todo.video.place,
            written=tuple(built),
            renewed=tuple(f"{name}: {reason}" for name, reason in todo.reasons.items()),
            predictions=tuple(reported) if self._plan.predictions else (),
        )

    def _to_saved(self, name: str, source: VideoSource, extracted: ExtractedVideo) -> SavedFeatures:
        windows = find_windows(self._extractors[name])
        rate = windows.extraction_fps if windows else None
        return SavedFeatures(
            tag=self._tags[name],
            source=source,
            media=extracted.video.media(),
            fps=rate or extracted.video.fps_average,
            streams=_select_streams(name, extracted.streams, self._extractors),
            classes=getattr(self._extractors[name], "classes", None),
        )

    def _load_extractor(self, name: str) -> AnyExtractor:
        """Loads an extractor; one of single frames looks at those that a stream set spreads over the time."""
        plan = self._plan
        load = partial(
            create,
            name,
            choose_device(plan.device),
            precision=plan.precision,
            threads=plan.settings.rows_side_by_side,
            cache=plan.settings.cache_folder,
            weights=plan.weights,
        )
        if plan.streams is None:
            return load(windows=plan.windows)
        extractor = load(windows=plan.streams.extractors.get(name, WindowOptions()))
        if plan.streams.spread is None or not getattr(extractor, "any_frames", False):
            return extractor
        return load(windows=WindowOptions(extraction_total=plan.streams.spread))


def make_tags(extractors: Mapping[str, AnyExtractor]) -> dict[str, FeatureSpec]:
    """Makes the name tag of each extractor, with those of the extractors whose streams it takes."""
    tags: dict[str, FeatureSpec] = {}
    for name, extractor in extractors.items():  # each stands behind those whose streams it takes
        others = (find_extractor_of(each, extractors) for each in getattr(extractor, "needs_streams", ()))
        inputs = {other: tags[other].spec_hash for other in others if other is not None}
        tags[name] = FeatureSpec(name, extractor.spec, find_windows(extractor), inputs)
    return tags


def find_windows(extractor: AnyExtractor) -> Windows | None:
    """Finds how it cuts videos; of sound no more is up to the user than how many rows there are at most."""
    windows = getattr(extractor, "windows", None)
    if isinstance(windows, Windows):
        return windows
    most = getattr(extractor, "most", None)
    return Windows(most=most) if isinstance(most, int) else None


def find_extractor_of(stream: str, names: Iterable[str]) -> str | None:
    """Finds the extractor that a stream is called after; one called after none is the oldest extractor's."""
    called = [name for name in names if stream == name or stream.startswith(f"{name}_")]
    return max(called, key=len, default=OLDEST if stream in ("frames", "grid") else None)


def _select_streams(name: str, streams: Mapping[str, Stream], names: Collection[str]) -> dict[str, Stream]:
    """Selects the streams of one extractor out of those of several."""
    return {each: stream for each, stream in streams.items() if find_extractor_of(each, names) == name}


def format_predictions(streams: Mapping[str, Stream], classes: Sequence[str] | None) -> str | None:
    """Names the likeliest classes of a video: the usual check that a network works.

    Returns ``0.93 archery, 0.02 yoga, …``, or that there is nothing that it knows; None without a classifier.
    Of ``…_logits`` the mean over rows of their softmax; of a detector's scores the best box of each class in
    any frame. Rows that are padded count only where there is no other.
    """
    for name, stream in streams.items():
        if name.endswith("_logits"):
            is_padded = stream.mask is not None and bool(stream.mask.any())
            values = stream.values[stream.mask] if is_padded else stream.values
            rows = values.float().flatten(0, -2)  # some have an axis of cells, too
            return _list_best(rows.softmax(1).mean(0), classes)
    for name, stream in streams.items():
        is_of_classes = classes is not None and stream.values.shape[-1] == len(classes)
        if stream.boxes is not None and (name.endswith("_scores") or is_of_classes):
            return _list_best(stream.values.float().flatten(0, 1).amax(0), classes)
    return None


def _list_best(probability: Tensor, classes: Sequence[str] | None) -> str:
    best = torch.topk(probability, min(MOST_PREDICTIONS, len(probability)))
    places = best.indices.tolist()
    names = [f"class {place}" if classes is None else classes[place] for place in places]
    pairs = zip(best.values.tolist(), names, strict=True)
    classes_text = ", ".join(f"{share:.2f} {name}" for share, name in pairs if share > 0)
    return classes_text or "nothing that it knows"
