"""Shares frames between processes: written once by the parent, mapped by the engine.

A video that waits for the engine has memory of its own, whose descriptor goes to the engine with the request;
what is asked for at once is written into the memory that both hold.
"""

import math
import mmap
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from extractors.child_process import open_shared_memory
from extractors.features import Audio, Footage, Frames, FrameSize

ALIGNMENT = 4  #: bytes: samples are float32


@dataclass(frozen=True)
class ArrayPlace:
    """Holds where an array lies in the shared memory."""

    offset: int  #: of the first byte
    shape: tuple[int, ...]


@dataclass(frozen=True)
class SharedFrames:
    """Holds where a video's pixels, and its sound, lie in the shared memory."""

    pixels: ArrayPlace  #: (T, H, W, 3)
    sized: tuple[tuple[FrameSize, ArrayPlace], ...]  #: the same frames in the sizes that extractors need
    pts: bytes  #: T seconds as float64
    duration: float  #: seconds
    fps: float  #: frames a second of the whole video
    samples: ArrayPlace | None = None  #: None where the frames came without sound
    rate: int = 0  #: samples a second
    #: 0 for the memory of the engine's process; else the number of another's descriptor, counted from 1,
    #: of those that go with the request.
    memory: int = 0


@dataclass(frozen=True, eq=False)
class SharedFootage(Footage):
    """Holds frames in memory of its own, mapped; ``close`` gives it back once they are not used any more."""

    descriptor: int = -1  #: of the memory
    place: SharedFrames | None = None  #: where in it the frames lie

    def close(self) -> None:
        os.close(self.descriptor)


@dataclass(frozen=True)
class SharedStreams:
    """Holds where a video's packed streams lie in the shared memory."""

    offset: int  #: of the first byte
    size: int  #: bytes


def share_footage(footage: Footage) -> SharedFootage:
    """Moves a video's frames, and its sound, into shared memory of their own."""
    descriptor = open_shared_memory()
    try:
        with open(descriptor, "wb", closefd=False) as file:
            place = _write_video(footage, file)
        memory = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
    except BaseException:
        os.close(descriptor)
        raise
    lent = _map_video(place, memory)
    return SharedFootage(
        lent.pixels,
        footage.pts,
        lent.duration,
        lent.fps,
        lent.sound,
        lent.sized,
        footage.shown,
        descriptor,
        place,
    )


def write_frames(
    videos: Sequence[Frames | bytes], shared: int
) -> tuple[list[SharedFrames | SharedStreams], list[int]]:
    """Writes frames, or packed streams, to the shared memory, replacing what was there.

    Returns where each lies, and the descriptors of those that have memory of their own.
    """
    os.ftruncate(shared, 0)
    places: list[SharedFrames | SharedStreams] = []
    descriptors: list[int] = []
    with open(shared, "wb", closefd=False) as file:
        file.seek(0)
        for video in videos:
            if isinstance(video, bytes):
                places.append(_write_streams(video, file))
            elif isinstance(video, SharedFootage) and video.place is not None:
                descriptors.append(video.descriptor)
                places.append(replace(video.place, memory=len(descriptors)))
            else:
                places.append(_write_video(video, file))
    return places, descriptors


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


def map_frames(
    located: Sequence[SharedFrames | SharedStreams], shared: int, descriptors: Sequence[int] = ()
) -> list[Footage | bytes]:
    """Finds videos in the shared memory.

    Args:
        located: where ``write_frames`` has put them.
        shared: descriptor of the memory.
        descriptors: of videos that have memory of their own; they may be closed then.

    Returns:
        Frames, without copying them, good until the next ``write_frames``; packed streams are copied.
    """
    memories: dict[int, mmap.mmap] = {}
    videos: list[Footage | bytes] = []
    for place in located:
        number = 0 if isinstance(place, SharedStreams) else place.memory
        if number not in memories:  # to be written to as well: torch wants arrays that it could write to
            memories[number] = mmap.mmap((shared, *descriptors)[number], 0, access=mmap.ACCESS_COPY)
        memory = memories[number]
        if isinstance(place, SharedStreams):
            videos.append(memory[place.offset : place.offset + place.size])
        else:
            videos.append(_map_video(place, memory))
    return videos


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
