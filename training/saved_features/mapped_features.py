"""Reads streams of other people's features, as a map names them, with times on the video's clock."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from extractors.decoder.decoder import Decoder
from extractors.features import Features, Stream, StreamSpec
from extractors.video_features.feature_files import FeaturesDamaged
from models.stream_set import SAVED, StreamInput, StreamSet
from training.batches.video_features import FailedVideo, FeatureStore
from training.datasets.caption_set import VideoItem
from training.saved_features.array_files import ArrayFiles, SavedArray, arrange, arranged_shape, choose_axes
from training.saved_features.feature_map import (
    LATE,
    FeatureMap,
    FeaturesDoNotFit,
    MappedStream,
    check_width,
    fill_pattern,
    list_failed,
    read_ids,
    read_names,
)

Times = NDArray[np.float64]


class MappedFeatures(FeatureStore):
    """Reads the features of a set's videos.

    Args:
        folder: Where the map's patterns begin.
        path: The map's file, beside which its file of names lies.
        found: What it says.
        wanted: The streams that are read, of the map's own set or of another.
        optional: Those of them that a video may lack.

    Raises:
        FeaturesDoNotFit: The map lacks a stream, or has it in another width or on another clock.
        FeatureMapDamaged: A file with the videos' names or ids cannot be read.
    """

    def __init__(
        self,
        folder: Path,
        path: Path,
        found: FeatureMap,
        wanted: StreamSet,
        optional: frozenset[str] = frozenset(),
    ) -> None:
        super().__init__()
        self._folder, self._map, self._optional = folder, found, optional
        self._streams = {name: _require(path, found, name, wanted) for name in wanted.streams}
        self._names: Mapping[str, str] = {} if found.names is None else read_names(path.parent / found.names)
        self._places = {
            each.ids: read_ids(path.parent / each.ids) for each in self._streams.values() if each.ids
        }
        self._files = ArrayFiles()
        self._steps = {each.stream: each.windows.step_size for each in wanted.inputs}
        if wanted.name != SAVED:
            for each in wanted.inputs:
                stream = self._streams[each.stream]
                check_width(each.stream, stream.width, each.width, f"the stream set {wanted.name}")
                _check_clock(each, wanted, stream, found)

    def make(self, videos: Iterable[VideoItem], decoder: Decoder) -> list[FailedVideo]:  # noqa: ARG002
        return list_failed(videos, self._check_all)

    def _read(self, video: VideoItem, *, verify: bool) -> Features:  # noqa: ARG002 - others write no digests
        streams = {}
        for name, stream in self._streams.items():
            try:
                streams[name] = self._read_stream(video, name, stream)
            except FileNotFoundError as error:
                if name not in self._optional:
                    raise FeaturesDamaged(f"features of {video.id} are gone: {error}") from error
        return streams

    def _check_all(self, video: VideoItem) -> None:
        for name, stream in self._streams.items():
            self._check(video, name, stream)

    def _check(self, video: VideoItem, name: str, stream: MappedStream) -> None:
        """Checks one array by its shape, and the times that follow from it."""
        try:
            place = self._place(video, stream)
            shape, file = self._files.shape(place), place.file
        except FileNotFoundError:
            if name in self._optional:
                return
            raise
        if 0 in shape:  # as video_features writes it of a clip that is shorter than its stack
            raise FeaturesDamaged(f"{file} is empty: it has no row.")
        arranged = arranged_shape(shape, _axes(file, shape, name, stream))
        if arranged is None:
            raise _misshapen(file, shape, name, stream)
        check_width(name, arranged[-1], stream.width, f"the map, as {file} shows")
        if stream.regions == "grid" and arranged[1] != stream.count:
            raise FeaturesDoNotFit(
                f"{file} has {arranged[1]} cells a step, and the map says count: {stream.count} for {name}."
            )
        start, end = self._times(video, name, stream, arranged[0])
        _check_times(name, start, end, self._map.duration_of(video), video.id)
        step = self._steps[name]
        if stream.timestamps is not None and step is not None:
            _check_stride(name, end, self._frame_rate(video, stream), step)

    def _read_stream(self, video: VideoItem, name: str, stream: MappedStream) -> Stream:
        place = self._place(video, stream)
        array = self._files.read(place)
        values = arrange(array, _axes(place.file, array.shape, name, stream))
        if values.dtype not in (np.float16, np.float32):
            values = values.astype(np.float32)
        start, end = self._times(video, name, stream, len(values))
        tensor = torch.from_numpy(np.ascontiguousarray(values))
        return Stream(tensor, start, end, _describe_spec(name, stream, self._map))

    def _place(self, video: VideoItem, stream: MappedStream) -> SavedArray:
        """Finds a video's array. Raises FileNotFoundError where a list of ids lacks the video."""
        key = None if stream.key is None else fill_pattern(stream.key, video, self._names)
        file = self._folder / fill_pattern(stream.file, video, self._names)
        if stream.ids is None:
            return SavedArray(file, key)
        row = self._places[stream.ids].get(self._names.get(video.id, video.id))
        if row is None:
            raise FileNotFoundError(f"{stream.ids} does not list {video.id}")
        return SavedArray(file, key, row)

    def _times(self, video: VideoItem, name: str, stream: MappedStream, rows: int) -> tuple[Times, Times]:
        """Computes when each row begins and ends, in seconds."""
        places = np.arange(rows, dtype=np.float64)
        if stream.fps is not None:
            return places / stream.fps, (places + 1) / stream.fps
        if stream.stride is not None:
            rate = self._frame_rate(video, stream)
            start = places * stream.stride / rate
            return start, start + (stream.window or stream.stride) / rate
        if stream.timestamps is not None:
            return self._read_times(video, name, stream, rows)
        duration = self._map.duration_of(video)
        if rows > 1 and not stream.spread:
            raise FeaturesDoNotFit(
                f"{name} of {video.id} has {rows} rows, and the map gives them no clock: "
                "say fps, stride, timestamps or spread."
            )
        if rows > 1 and duration is None:
            raise FeaturesDoNotFit(
                f"{name} is spread over the video, and nothing says how long {video.id} is: "
                "put duration into the map."
            )
        seconds = duration or 1.0
        return places * seconds / rows, (places + 1) * seconds / rows

    def _read_times(
        self, video: VideoItem, name: str, stream: MappedStream, rows: int
    ) -> tuple[Times, Times]:
        assert stream.timestamps is not None
        file = self._folder / fill_pattern(stream.timestamps, video, self._names)
        end = np.asarray(self._files.read(SavedArray(file)), np.float64).reshape(-1) / 1000
        if len(end) != rows:
            raise FeaturesDoNotFit(f"{file} has {len(end)} times, and {name} of {video.id} has {rows} rows.")
        if stream.window is None:
            return np.concatenate([[0.0], end[:-1]]), end
        return np.maximum(end - stream.window / self._frame_rate(video, stream), 0), end

    def _frame_rate(self, video: VideoItem, stream: MappedStream) -> float:
        frame_rate: Any = stream.frame_rate or self._map.frame_rate
        if isinstance(frame_rate, str):
            file = self._folder / fill_pattern(frame_rate, video, self._names)
            frame_rate = float(np.asarray(self._files.read(SavedArray(file))).reshape(-1)[0])
        if frame_rate is None or not frame_rate > 0:
            raise FeaturesDoNotFit(f"the map gives {video.id} no frame_rate above zero.")
        return float(frame_rate)


def _describe_spec(name: str, stream: MappedStream, found: FeatureMap) -> StreamSpec:
    """Makes the name tag of a mapped stream: its network, as far as it is told, and its clock.

    name: of the stream, where its network is not told. found: the map, whose frame rate counts for streams
    without one.
    """
    rate = stream.frame_rate or found.frame_rate
    at = f" at {rate:g} a second" if stream.stride is not None and isinstance(rate, float | int) else ""
    return StreamSpec(stream.network or name, "", f"made elsewhere, {stream.clock}{at}")


def _require(path: Path, found: FeatureMap, name: str, wanted: StreamSet) -> MappedStream:
    if name not in found.streams:
        names = ", ".join(found.streams)
        raise FeaturesDoNotFit(
            f"{path} names {names}, and not {name} of the stream set {wanted.name}: name it too, or leave "
            "out --streams, and the captioner is built for what the map names."
        )
    return found.streams[name]


def _axes(file: Path, shape: tuple[int, ...], name: str, stream: MappedStream) -> str:
    axes = stream.axes or choose_axes(len(shape), regions=stream.regions != "none")
    if axes is None or len(axes) != len(shape):
        raise _misshapen(file, shape, name, stream)
    return axes


def _misshapen(file: Path, shape: tuple[int, ...], name: str, stream: MappedStream) -> FeaturesDoNotFit:
    usual = "NC, TNC or THWC" if stream.regions != "none" else "C, TC or 1TC"
    return FeaturesDoNotFit(
        f"{file} holds {'×'.join(map(str, shape))} for {name}, which is not {stream.axes or usual}: "
        "say in the map what its axes are."
    )


def _check_clock(asked: StreamInput, streams: StreamSet, given: MappedStream, found: FeatureMap) -> None:
    """Checks the clock that a map states by the one that a stream set asks for. Raises FeaturesDoNotFit.

    Rows with times of their own are left to the files; a stream that the set leaves its own clock has any.
    """
    windows, rate = asked.windows, given.frame_rate or found.frame_rate
    clock = _describe_clock(asked, streams)
    if given.timestamps is not None or clock is None:
        return
    if streams.spread is not None or windows.extraction_total is not None:
        fits = given.spread or given.clock == "one row a video"
    elif windows.extraction_fps is not None:
        wanted_rate = windows.extraction_fps / (windows.step_size or 1)
        fits = _rows_a_second(given, rate) in (None, wanted_rate) and not given.spread
    else:
        fits = given.stride == windows.step_size or _steps(given, rate) == windows.step_size
    if windows.stack_size is not None and given.window is not None:
        fits = fits and given.window == windows.stack_size
    if not fits:
        raise FeaturesDoNotFit(
            f"{asked.stream} has {given.clock}, and the stream set {streams.name} asks for {clock}."
        )


def _rows_a_second(given: MappedStream, rate: object) -> float | None:
    """Computes the rows a second; None where the videos' own frame rates decide it."""
    if given.stride is not None:
        return rate / given.stride if isinstance(rate, float | int) else None
    return given.fps


def _steps(given: MappedStream, rate: object) -> float | None:
    """Computes the frames from row to row of a stream whose rows are counted by the second."""
    return rate / given.fps if given.fps is not None and isinstance(rate, float | int) else None


def _describe_clock(asked: StreamInput, streams: StreamSet) -> str | None:
    """Describes which rows a set asks for; None where it leaves them to the extractor."""
    windows = asked.windows
    if streams.spread is not None:
        return "rows spread over the video"
    if windows.extraction_total is not None:
        return f"{windows.extraction_total} rows spread over the video"
    if windows.step_size is None:
        return None
    of = f" of {windows.stack_size}" if windows.stack_size is not None else ""
    at = f" at {windows.extraction_fps:g} frames a second" if windows.extraction_fps is not None else ""
    return f"rows{of} every {windows.step_size} frames{at}"


def _check_times(
    name: str, start: NDArray[np.float64], end: NDArray[np.float64], duration: float | None, video: str
) -> None:
    """Checks that rows (T,), in seconds, follow each other, and begin before their video ends, where that is
    known. Raises FeaturesDoNotFit.
    """
    times = np.stack([start, end])
    if not (np.isfinite(times).all() and (np.diff(times) >= 0).all()):
        raise FeaturesDoNotFit(f"the times of {name} of {video} do not rise from row to row.")
    if duration is not None and start[-1] >= duration + LATE:
        raise FeaturesDoNotFit(
            f"the last row of {name} begins at {start[-1]:.1f} s, and {video} is {duration:g} s long: "
            "the map's clock is not that of the features."
        )


def _check_stride(name: str, end: NDArray[np.float64], rate: float, asked: int) -> None:
    """Checks how many frames lie between rows whose times (T,), in seconds, are their own.

    rate: frames a second. Raises FeaturesDoNotFit where they are more than half a frame off.
    """
    frames = float(np.median(np.diff(end))) * rate if len(end) > 1 else asked
    if abs(frames - asked) > 0.5:
        raise FeaturesDoNotFit(
            f"the rows of {name} are {frames:.1f} frames apart, and the stream set asks for {asked}."
        )
