"""Shares frames between processes: written once by the parent, mapped by the engine."""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from extractors.features import Audio, Footage, Frames
from extractors.frame_size import FrameSize

ALIGNMENT = 4  #: bytes: samples are float32


@dataclass(frozen=True)
class ArrayPlace:
    """Tells where an array lies in the shared memory. offset: of the first byte."""

    offset: int
    shape: tuple[int, ...]


@dataclass(frozen=True)
class SharedFrames:
    """Tells where a video's pixels, and its sound, lie in the shared memory.

    pixels: (T, H, W, 3). sized: the same frames in the sizes that extractors asked for. pts: T seconds as
    float64 bytes. duration: seconds. fps: frames a second of the whole video. samples: None where the frames
    came without sound. rate: samples a second.
    """

    pixels: ArrayPlace
    sized: tuple[tuple[FrameSize, ArrayPlace], ...]
    pts: bytes
    duration: float
    fps: float
    samples: ArrayPlace | None = None
    rate: int = 0


@dataclass(frozen=True)
class SharedStreams:
    """Tells where a video's packed streams lie in the shared memory. offset: of the first byte."""

    offset: int
    size: int


def write_frames(videos: Sequence[Frames | bytes], shared: int) -> list[SharedFrames | SharedStreams]:
    """Writes videos to the shared memory, replacing what was there.

    Args:
        videos: the pixels of each, or its packed streams.
        shared: descriptor of the memory.

    Returns:
        Where each of them lies.
    """
    os.ftruncate(shared, 0)
    with open(shared, "wb", closefd=False) as file:
        file.seek(0)
        return [
            _write_streams(video, file) if isinstance(video, bytes) else _write_video(video, file)
            for video in videos
        ]


def _write_streams(packed: bytes, file: BinaryIO) -> SharedStreams:
    place = SharedStreams(file.tell(), len(packed))
    file.write(packed)
    file.write(bytes(-len(packed) % ALIGNMENT))
    return place


def _write_video(video: Frames, file: BinaryIO) -> SharedFrames:
    pixels = _write_array(video.pixels, file)
    sized = video.sized if isinstance(video, Footage) else {}
    places = tuple((size, _write_array(array, file)) for size, array in sized.items())
    sound = video.sound if isinstance(video, Footage) else None
    return SharedFrames(
        pixels,
        places,
        video.pts.tobytes(),
        video.duration,
        video.rate,
        None if sound is None else _write_array(sound.samples, file),
        0 if sound is None else sound.rate,
    )


def _write_array(array: NDArray[Any], file: BinaryIO) -> ArrayPlace:
    place = ArrayPlace(file.tell(), array.shape)
    file.write(np.ascontiguousarray(array).data.cast("B"))
    file.write(bytes(-array.nbytes % ALIGNMENT))
    return place


def map_frames(located: Sequence[SharedFrames | SharedStreams], shared: int) -> list[Footage | bytes]:
    """Finds videos in the shared memory.

    Args:
        located: where ``write_frames`` has put them.
        shared: descriptor of the memory.

    Returns:
        Frames, without copying them, good until the next ``write_frames``; packed streams are copied.
    """
    if not located:
        return []
    memory = mmap.mmap(shared, 0, access=mmap.ACCESS_COPY)  # torch wants arrays that it could write to
    return [
        memory[place.offset : place.offset + place.size]
        if isinstance(place, SharedStreams)
        else _map_video(place, memory)
        for place in located
    ]


def _map_video(frames_at: SharedFrames, memory: mmap.mmap) -> Footage:
    sound = None
    if frames_at.samples is not None:
        sound = Audio(_map_array(memory, np.float32, frames_at.samples), frames_at.rate)
    return Footage(
        _map_array(memory, np.uint8, frames_at.pixels),
        np.frombuffer(frames_at.pts, np.float64).copy(),
        frames_at.duration,
        frames_at.fps,
        sound,
        {size: _map_array(memory, np.uint8, place) for size, place in frames_at.sized},
    )


def _map_array(memory: mmap.mmap, kind: type[Any], place: ArrayPlace) -> NDArray[Any]:
    return np.frombuffer(memory, kind, math.prod(place.shape), place.offset).reshape(place.shape)
