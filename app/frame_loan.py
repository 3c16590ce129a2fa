"""Frames in memory that two processes map: written once by the parent, read without a copy by the engine."""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from extractors.features import Frames
from extractors.request import Audio, Footage

ALIGNMENT = 4  #: bytes: samples are float32


@dataclass(frozen=True)
class FrameLoan:
    """Where a video's pixels, and its sound behind them, lie in the shared memory.

    offset: of the first byte. shape: (T, H, W, 3). pts: T seconds as float64 bytes. duration: seconds.
    fps: frames a second of the whole video. samples: how many of sound, None where the frames came without.
    rate: samples a second.
    """

    offset: int
    shape: tuple[int, ...]
    pts: bytes
    duration: float
    fps: float
    samples: int | None = None
    rate: int = 0


def shared_memory() -> int:
    """A descriptor of memory without a name, which is gone with its last holder."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("frames")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def lend(videos: Sequence[Frames], shared: int) -> list[FrameLoan]:
    """Writes pixels to the shared memory, replacing what was there."""
    os.ftruncate(shared, 0)
    loans, offset = [], 0
    with open(shared, "wb", closefd=False) as file:
        file.seek(0)
        for video in videos:
            pixels = np.ascontiguousarray(video.pixels)
            file.write(pixels.data.cast("B"))
            file.write(bytes(-pixels.nbytes % ALIGNMENT))
            sound = video.sound if isinstance(video, Footage) else None
            loan = FrameLoan(offset, pixels.shape, video.pts.tobytes(), video.duration, video.rate)
            offset += pixels.nbytes + -pixels.nbytes % ALIGNMENT
            if sound is not None:
                file.write(np.ascontiguousarray(sound.samples).data.cast("B"))
                offset += sound.samples.nbytes
                loan = replace(loan, samples=len(sound.samples), rate=sound.rate)
            loans.append(loan)
    return loans


def borrow(loans: Sequence[FrameLoan], shared: int) -> list[Footage]:
    """Videos over the shared memory; good until the next ``lend``."""
    if not loans:
        return []
    memory = mmap.mmap(shared, 0, access=mmap.ACCESS_COPY)  # torch wants arrays that it could write to
    return [_borrowed(loan, memory) for loan in loans]


def _borrowed(loan: FrameLoan, memory: mmap.mmap) -> Footage:
    size = int(np.prod(loan.shape))
    sound = None
    if loan.samples is not None:
        start = loan.offset + size + -size % ALIGNMENT
        sound = Audio(np.frombuffer(memory, np.float32, loan.samples, start), loan.rate)
    return Footage(
        np.frombuffer(memory, np.uint8, size, loan.offset).reshape(loan.shape),
        np.frombuffer(loan.pts, np.float64).copy(),
        loan.duration,
        loan.fps,
        sound,
    )
