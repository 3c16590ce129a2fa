"""Turns sound into the log-mel spectrograms that VGGish was trained on, and resamples it.

Hershey et al., "CNN Architectures for Large-Scale Audio Classification", ICASSP 2017 (arXiv:1609.09430);
the numbers are those of TensorFlow's models/research/audioset/vggish, in float64. Resampling is by a windowed
sinc (Smith, "Digital Audio Resampling", 1984) with the window that public extractors of sound use, resampy
0.4's ``kaiser_best``: FFmpeg's default filter differs from it by 6 % near 8 kHz.
"""

import math
from functools import cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

RATE = 16_000
WINDOW, HOP, FFT = 400, 160, 512
BANDS, LOWEST, HIGHEST = 64, 125.0, 7500.0
#: Added before the logarithm, so that silence is ln(0.01) and not minus infinity.
OFFSET = 0.01
#: Spectra of one example, one hundredth of a second each.
STEPS = 96
#: Samples of the shortest sound that gives a whole example, and from one example to the next.
EXAMPLE, EXAMPLE_HOP = WINDOW + (STEPS - 1) * HOP, STEPS * HOP


def compute_log_mel(samples: NDArray[np.floating]) -> Floats:
    """Computes spectra (S, 64) of mono sound in [-1, 1] at 16 kHz, unpadded: none below 400 samples."""
    if len(samples) < WINDOW:
        return np.zeros((0, BANDS))
    frames = np.lib.stride_tricks.sliding_window_view(samples.astype(np.float64), WINDOW)[::HOP]
    magnitudes = np.abs(np.fft.rfft(frames * _periodic_hann(), FFT))
    spectra: Floats = np.log(magnitudes @ _make_mel_matrix() + OFFSET)
    return spectra


def compute_examples(samples: NDArray[np.floating]) -> NDArray[np.float32]:
    """Cuts whole examples (N, 96, 64) of 0.96 seconds each, side by side; the incomplete tail is left out."""
    spectra = compute_log_mel(samples)
    count = len(spectra) // STEPS
    return spectra[: count * STEPS].reshape(count, STEPS, BANDS).astype(np.float32)


def _periodic_hann() -> Floats:
    """Makes Hann's window without its last point, which would repeat the first ("periodic")."""
    window: Floats = 0.5 - 0.5 * np.cos(2 * np.pi / WINDOW * np.arange(WINDOW))
    return window


def _to_mel(hertz: Floats) -> Floats:
    """HTK's formula."""
    mel: Floats = 1127.0 * np.log1p(hertz / 700.0)
    return mel


@cache
def _make_mel_matrix() -> Floats:
    """Makes (257, 64): triangles straight in mel, not in hertz; the constant part belongs to none."""
    bins = _to_mel(np.linspace(0.0, RATE / 2, FFT // 2 + 1))[:, None]
    lowest, highest = _to_mel(np.array([LOWEST, HIGHEST]))
    edges = np.linspace(lowest, highest, BANDS + 2)
    left, centre, right = edges[:-2], edges[1:-1], edges[2:]
    rising, falling = (bins - left) / (centre - left), (right - bins) / (right - centre)
    matrix: Floats = np.maximum(0.0, np.minimum(rising, falling))
    matrix[0] = 0.0
    return matrix


#: Zero crossings on each side, Kaiser's beta, and the cut-off as a share of the Nyquist frequency.
ZEROS, BETA, ROLLOFF = 50, 12.984585, 0.917347


def resample(
    samples: NDArray[np.floating], rate: int, wanted: int, begin: int = 0, end: int | None = None
) -> Floats:
    """Resamples mono sound, silence around it.

    Args:
        samples: (S,).
        rate: of them, a second.
        wanted: of the result, a second.
        begin: first sample of the result that is made, as if it were cut from the whole.
        end: behind the last one; None for all.

    Returns:
        float64 (end − begin,); the whole is ⌊S · wanted / rate⌋ samples long.
    """
    divisor = math.gcd(rate, wanted)
    up, down = wanted // divisor, rate // divisor
    whole = len(samples) * up // down
    begin, end = min(begin, whole), whole if end is None else min(end, whole)
    if rate == wanted or begin == end:
        return samples[begin:end].astype(np.float64)
    result = np.zeros(end - begin)
    reach = math.ceil(ZEROS * max(1.0, down / up))
    zero = begin * down // up
    around = _pad_around(samples, zero - reach, (end - 1) * down // up + reach + 1)
    windows = np.lib.stride_tricks.sliding_window_view(around, 2 * reach + 1)
    # outputs that lie alike between two inputs share one filter
    for phase in range(min(up, len(result))):
        first, between = divmod((begin + phase) * down, up)
        count = len(result[phase::up])
        here = windows[first - zero :: down][:count]
        result[phase::up] = here @ _make_filter(between / up, reach, min(1.0, up / down))
    return result


def _pad_around(samples: NDArray[np.floating], begin: int, end: int) -> Floats:
    """Samples from ``begin`` to ``end``, silence where there are none."""
    inside = samples[max(begin, 0) : min(end, len(samples))].astype(np.float64)
    return np.pad(inside, (max(-begin, 0), max(end - len(samples), 0)))


def _make_filter(between: float, reach: int, scale: float) -> Floats:
    """Weights of the inputs around an output that lies ``between`` two of them."""
    distance = (np.arange(-reach, reach + 1) - between) * scale
    inside = np.clip(1.0 - (distance / ZEROS) ** 2, 0.0, None)
    window = np.where(inside > 0, np.i0(BETA * np.sqrt(inside)) / np.i0(BETA), 0.0)
    weights: Floats = ROLLOFF * scale * np.sinc(ROLLOFF * distance) * window
    return weights
