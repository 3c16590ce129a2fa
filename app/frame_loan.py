"""Frames in memory that two processes map: written once by the parent, read without a copy by the engine."""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from extractors.features import Frames


@dataclass(frozen=True)
class FrameLoan:
    """Where a video's pixels lie in the shared memory.

    offset: of the first byte. shape: (T, H, W, 3). pts: T seconds as float64 bytes. duration: seconds.
    fps: frames a second of the whole video.
    """

    offset: int
    shape: tuple[int, ...]
    pts: bytes
    duration: float
    fps: float


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
            file.write(np.ascontiguousarray(video.pixels).data.cast("B"))
            loans.append(
                FrameLoan(offset, video.pixels.shape, video.pts.tobytes(), video.duration, video.rate)
            )
            offset += video.pixels.nbytes
    return loans


def borrow(loans: Sequence[FrameLoan], shared: int) -> list[Frames]:
    """Videos over the shared memory; good until the next ``lend``."""
    if not loans:
        return []
    memory = mmap.mmap(shared, 0, access=mmap.ACCESS_COPY)  # torch wants arrays that it could write to
    return [
        Frames(
            np.frombuffer(memory, np.uint8, int(np.prod(loan.shape)), loan.offset).reshape(loan.shape),
            np.frombuffer(loan.pts, np.float64).copy(),
            loan.duration,
            loan.fps,
        )
        for loan in loans
    ]
