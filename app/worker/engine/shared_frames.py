"""Shares frames between processes: written once by the parent, mapped by the engine.

A video that waits for the engine has memory of its own, whose descriptor goes to the engine with the request;
what is asked for at once is written into the memory that both hold. A video is pickled but for its arrays,
which lie in the memory as they are.
"""

import io
import math
import mmap
import os
import pickle
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, BinaryIO

import numpy as np

from extractors.child_process import open_shared_memory
from extractors.features import Footage, Frames

ALIGNMENT = 8  #: bytes: times are float64


@dataclass(frozen=True)
class SharedVideo:
    """Holds a video, or packed streams, without what lies in the shared memory."""

    pickled: bytes  #: says of each array where it lies
    #: 0 for the memory of the engine's process; else the number of another's descriptor, counted from 1,
    #: of those that go with the request.
    memory: int = 0


@dataclass(frozen=True, eq=False)
class SharedFootage(Footage):
    """Holds frames in memory of its own, mapped; ``close`` gives it back once they are not used any more."""

    descriptor: int = -1  #: of the memory
    place: SharedVideo | None = None  #: where in it the frames lie

    def close(self) -> None:
        os.close(self.descriptor)


class _ArrayWriter(pickle.Pickler):
    """Pickles a value and writes its arrays to a file."""

    def __init__(self, pickled: BinaryIO, file: BinaryIO) -> None:
        super().__init__(pickled)
        self._file = file

    def persistent_id(self, value: Any) -> tuple[int, tuple[int, ...], str] | None:
        if not isinstance(value, np.ndarray):
            return None
        place = (self._file.tell(), value.shape, value.dtype.str)
        self._file.write(np.ascontiguousarray(value).data.cast("B"))
        self._file.write(bytes(-value.nbytes % ALIGNMENT))
        return place


class _ArrayMapper(pickle.Unpickler):
    """Reads a value whose arrays lie in memory, without copying them."""

    def __init__(self, pickled: BinaryIO, memory: mmap.mmap) -> None:
        super().__init__(pickled)
        self._memory = memory

    def persistent_load(self, place: tuple[int, tuple[int, ...], str]) -> Any:
        offset, shape, kind = place
        return np.frombuffer(self._memory, kind, math.prod(shape), offset).reshape(shape)


def share_footage(footage: Footage) -> SharedFootage:
    """Moves a video's frames, and its sound, into shared memory of their own."""
    descriptor = open_shared_memory()
    try:
        with open(descriptor, "wb", closefd=False) as file:
            place = _write(footage, file)
        memory = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
    except BaseException:
        os.close(descriptor)
        raise
    return SharedFootage(**vars(_map(place, memory)), descriptor=descriptor, place=place)


def write_frames(videos: Sequence[Frames | bytes], shared: int) -> tuple[list[SharedVideo], list[int]]:
    """Writes videos to the shared memory; returns their places, and descriptors of memory of their own."""
    os.ftruncate(shared, 0)
    places: list[SharedVideo] = []
    descriptors: list[int] = []
    with open(shared, "wb", closefd=False) as file:
        file.seek(0)
        for video in videos:
            if isinstance(video, SharedFootage) and video.place is not None:
                descriptors.append(video.descriptor)
                places.append(replace(video.place, memory=len(descriptors)))
            else:
                places.append(_write(video, file))
    return places, descriptors


def _write(video: Frames | bytes, file: BinaryIO) -> SharedVideo:
    pickled = io.BytesIO()
    content: Any
    if isinstance(video, bytes):
        content = np.frombuffer(video, np.uint8)
    elif isinstance(video, Footage):
        content = replace(video, fps=video.rate)
    else:
        content = Footage(video.pixels, video.pts, video.duration, video.rate)
    _ArrayWriter(pickled, file).dump(content)
    return SharedVideo(pickled.getvalue())


def map_frames(
    located: Sequence[SharedVideo], shared: int, descriptors: Sequence[int] = ()
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
        if (
            place.memory not in memories
        ):  # to be written to as well: torch wants arrays that it could write to
            descriptor = (shared, *descriptors)[place.memory]
            memories[place.memory] = mmap.mmap(descriptor, 0, access=mmap.ACCESS_COPY)
        video = _map(place, memories[place.memory])
        videos.append(video.tobytes() if isinstance(video, np.ndarray) else video)
    return videos


def _map(place: SharedVideo, memory: mmap.mmap) -> Any:
    return _ArrayMapper(io.BytesIO(place.pickled), memory).load()
