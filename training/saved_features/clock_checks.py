"""Checks that saved features have the width and the clock that a stream set asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from extractors.errors import ReelwordError
from extractors.video_features.feature_files import FeaturesDamaged
from extractors.windows import Windows
from models.stream_set import StreamInput, StreamSet
from training.batches.video_features import FailedVideo
from training.datasets.caption_set import VideoItem
from training.saved_features.feature_map import FeatureMap, MappedStream

#: Seconds that rows may begin after a video's end: the seconds of clips are whole ones.
LATE = 1.0


class FeaturesDoNotFit(ReelwordError, ValueError):
    """Saved features have another width, shape or clock than they should; the message says which."""

    code = "features_do_not_fit"
    hint = "Correct the map, name another stream set, or make the features again with reelword extract."


def list_failed(videos: Iterable[VideoItem], check: Callable[[VideoItem], None]) -> list[FailedVideo]:
    """Lists the videos whose features ``check`` misses (FileNotFoundError) or finds damaged, and why."""
    failed = []
    for video in tqdm(videos, desc="saved features", unit="video", disable=None):
        try:
            check(video)
        except FileNotFoundError as error:
            failed.append(FailedVideo(video.id, "features_missing", f"its features are missing: {error}"))
        except FeaturesDamaged as error:
            failed.append(FailedVideo(video.id, error.code, str(error)))
    return failed


def check_width(name: str, found: int, wanted: int, asked_by: str) -> None:
    """Checks a stream's channels.

    Args:
        name: Of the stream.
        found: Channels that the features have.
        wanted: Channels that they should have.
        asked_by: Who says so, for the error.

    Raises:
        FeaturesDoNotFit: The two differ.
    """
    if found != wanted:
        raise FeaturesDoNotFit(f"{name} is {found} wide, and {asked_by} has it {wanted} wide.")


def check_mapped_clock(
    asked: StreamInput, streams: StreamSet, given: MappedStream, found: FeatureMap
) -> None:
    """Checks the clock that a map states by the one that a stream set asks for.

    Rows with times of their own are left to the files; a stream that the set leaves its own clock has any.

    Args:
        asked: The stream of the set.
        streams: The set.
        given: The stream of the map.
        found: The map.

    Raises:
        FeaturesDoNotFit: The two differ.
    """
    windows, rate = asked.windows, given.frame_rate or found.frame_rate
    clock = describe_windows(asked, streams)
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


def describe_windows(asked: StreamInput, streams: StreamSet) -> str | None:
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


def check_extracted_windows(asked: StreamInput, streams: StreamSet, windows: Windows | None) -> None:
    """Checks how an extractor cut its videos by what a stream set asks for.

    Args:
        asked: The stream of the set.
        streams: The set.
        windows: The extractor's, None for one that has its own way.

    Raises:
        FeaturesDoNotFit: A member differs that the set states.
    """
    if windows is None:
        return
    if streams.spread is not None:
        if windows.extraction_total is None:
            raise FeaturesDoNotFit(
                f"{asked.stream} was made of windows every {windows.step_size} frames, and the stream set "
                f"{streams.name} spreads frames over the video: extract with --extraction-total "
                f"{streams.spread}."
            )
        return
    for member, value in asdict(asked.windows).items():
        saved_value = getattr(windows, member)
        fits = (
            saved_value >= value if member == "most" and value is not None else value in (None, saved_value)
        )
        if not fits:
            option = f"--{member.replace('_', '-')} {value}"
            raise FeaturesDoNotFit(
                f"{asked.stream} was made with {member} {saved_value}, and the stream set {streams.name} "
                f"asks for {value}: extract with {option}."
            )


def check_times(
    name: str, start: NDArray[np.float64], end: NDArray[np.float64], duration: float | None, video: str
) -> None:
    """Checks that rows follow each other, and begin before their video ends.

    Args:
        name: Of the stream.
        start: (T,) seconds.
        end: (T,) seconds.
        duration: Of the video, None where it is not known.
        video: Its id.

    Raises:
        FeaturesDoNotFit: The last row begins later, or a row before the one that it follows.
    """
    times = np.stack([start, end])
    if not (np.isfinite(times).all() and (np.diff(times) >= 0).all()):
        raise FeaturesDoNotFit(f"the times of {name} of {video} do not rise from row to row.")
    if duration is not None and start[-1] >= duration + LATE:
        raise FeaturesDoNotFit(
            f"the last row of {name} begins at {start[-1]:.1f} s, and {video} is {duration:g} s long: "
            "the map's clock is not that of the features."
        )


def check_stride(name: str, end: NDArray[np.float64], rate: float, asked: int) -> None:
    """Checks the frames between rows that have times of their own.

    Args:
        name: Of the stream.
        end: (T,) seconds.
        rate: Frames a second.
        asked: Frames from one row to the next.

    Raises:
        FeaturesDoNotFit: They are more than half a frame off.
    """
    frames = float(np.median(np.diff(end))) * rate if len(end) > 1 else asked
    if abs(frames - asked) > 0.5:
        raise FeaturesDoNotFit(
            f"the rows of {name} are {frames:.1f} frames apart, and the stream set asks for {asked}."
        )
