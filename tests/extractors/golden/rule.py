"""The rule behind the golden files: weights and inputs that anybody can make again, bit for bit.

Every number comes from the raw words of a PCG64 keyed by text, through whole numbers and single float64
operations, so it is the same on every machine. ``checks`` of the manifest prove that this is that rule.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Scales = Sequence[tuple[str, float]]

LEFT_ALONE = frozenset({"num_batches_tracked", "pixel_mean", "pixel_std", "cell_anchors"})
#: Centre and standard deviation of the sum of four whole numbers, each even over 0..65535.
CENTRE, SPREAD = 131070.0, 37837.22723720648
AT_ONCE = 1 << 15  # words, so that all steps find them in the processor's cache
EVEN_PARTS, LOW_HALF = np.uint64(0x0000FFFF0000FFFF), np.uint64(0xFFFFFFFF)
#: Points of a smooth noise's coarse grid are this many pixels apart; the last is white noise.
OCTAVES = ((40, 0.9), (9, 0.45), (1, 0.15))
RANGES = {"pm1": 1.0, "norm": 2.0, "px": 40.0}


def parameter(name: str, shape: Sequence[int], seed: int, scales: Scales = ()) -> NDArray[np.float32] | None:
    """The value of a parameter or buffer by its public name; None where the network keeps its own."""
    parts = name.split(".")
    if not shape or LEFT_ALONE.intersection(parts):
        return None
    words = _words(f"{seed}|{name}")
    count = math.prod(shape)
    if parts[-1] == "running_var":
        values = 0.5 + _even(words, count)
    else:
        values = _near_normal(words, count)
        if len(shape) >= 2 and parts[-1] != "running_mean":
            values *= math.sqrt(2.0 / math.prod(shape[1:]))
        elif parts[-1] == "weight":
            values = 1.0 + 0.1 * values
        else:
            values *= 0.1
    for suffix, factor in scales:
        if name.endswith(suffix):
            values *= factor
    return values.astype(np.float32).reshape(shape)


def made_input(kind: str, shape: Sequence[int], seed: int) -> NDArray[np.generic]:
    """An input: ``noise``, ``audio16``, or ``image``, ``video`` or ``flow`` with its range after ``_``."""
    key = f"{seed}|input|{kind}"
    if kind == "noise":
        return _near_normal(_words(key), math.prod(shape)).astype(np.float32).reshape(shape)
    if kind == "audio16":
        return _sound(key, *shape)
    subject, _, values = kind.partition("_")
    smooth = _smooth(key, shape, {"image": 2, "video": 3, "flow": 3}[subject])
    if values == "u8":
        return np.minimum(np.floor((smooth * 0.5 + 0.5) * 256.0), 255.0).astype(np.uint8)
    return (smooth * RANGES[values]).astype(np.float32)


def _words(key: str) -> np.random.PCG64:
    return np.random.PCG64(int.from_bytes(hashlib.sha256(key.encode()).digest()[:16], "big"))


def _near_normal(words: np.random.PCG64, count: int) -> Floats:
    """Sums of each word's four 16-bit parts, centred and scaled: never beyond ±3.47."""
    values = np.empty(count)
    for start in range(0, count, AT_ONCE):
        part = values[start : start + AT_ONCE]
        word = words.random_raw(len(part))
        pairs = (word & EVEN_PARTS) + (word >> np.uint64(16) & EVEN_PARTS)
        part[:] = (pairs & LOW_HALF) + (pairs >> np.uint64(32))
        part -= CENTRE
        part /= SPREAD
    return values


def _even(words: np.random.PCG64, count: int) -> Floats:
    """Even over [0, 1): the upper 53 bits of each word."""
    values: Floats = (words.random_raw(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return values


def _smooth(key: str, shape: Sequence[int], dims: int) -> Floats:
    """Noise in [-1, 1], smooth along the last ``dims`` axes (height and width, and time before them)."""
    total = np.zeros(shape)
    for octave, (cell, amplitude) in enumerate(OCTAVES):
        grid = list(shape)
        for axis in range(len(shape) - dims, len(shape)) if cell > 1 else ():
            apart = max(2, cell // 5) if axis == len(shape) - 3 else cell
            grid[axis] = max(2, math.ceil(shape[axis] / apart) + 1)
        noise: Floats = 2.0 * _even(_words(f"{key}|{octave}"), math.prod(grid)).reshape(grid) - 1.0
        for axis in range(len(shape) - dims, len(shape)) if cell > 1 else ():
            noise = _stretched(noise, axis, shape[axis])
        total += amplitude * noise
    return np.clip(total, -1.0, 1.0)


def _stretched(values: Floats, axis: int, size: int) -> Floats:
    """One axis interpolated to ``size`` points, its ends kept."""
    if size == 1:
        return values.take([0], axis)
    gaps = values.shape[axis] - 1
    position = np.arange(size) * gaps  # in units of 1 / (size - 1) of a gap
    before = np.minimum(position // (size - 1), gaps - 1)
    fraction = (position - before * (size - 1)) / (size - 1)
    weight = np.expand_dims(fraction, [i for i in range(values.ndim) if i != axis])
    stretched: Floats = values.take(before, axis) * (1.0 - weight) + values.take(before + 1, axis) * weight
    return stretched


def _sound(key: str, count: int) -> NDArray[np.int16]:
    """Three tones, a chirp and noise, with half a second in five that is a hundred times quieter."""
    i = np.arange(count, dtype=np.int64)
    draws = _words(key).random_raw(4)
    pitches = [int(draw) % 2400 + lowest for draw, lowest in zip(draws, (400, 2600, 7000), strict=False)]
    sound = 0.35 * _wave(i * pitches[0]) + 0.2 * _wave(i * pitches[1]) + 0.1 * _wave(i * pitches[2])
    sound += 0.2 * _wave(i * i // 40)
    sound += 0.1 * (2.0 * _even(_words(f"{key}|n"), count) - 1.0)
    sound = np.where(i // 8000 % 5 == 3, sound * 0.01, sound)
    return np.floor(sound * 32767.0 + 0.5).astype(np.int16)


def _wave(phase: NDArray[np.int64]) -> Floats:
    """A sine drawn with parabolas; the phase is in 1/65536 turns."""
    p = phase % 65536 / 32768.0 - 1.0
    wave: Floats = 4.0 * p * (1.0 - np.abs(p))
    return wave
