"""Sound to pictures of itself: the log-mel spectrogram that VGGish was trained on.

Hershey et al., "CNN Architectures for Large-Scale Audio Classification", ICASSP 2017 (arXiv:1609.09430);
the numbers are those of TensorFlow's models/research/audioset/vggish. All of it runs in float64.
"""

from __future__ import annotations

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


def log_mel(samples: NDArray[np.floating]) -> Floats:
    """Spectra (S, 64) of mono sound in [-1, 1] at 16 kHz, without padding: none below 400 samples."""
    if len(samples) < WINDOW:
        return np.zeros((0, BANDS))
    frames = np.lib.stride_tricks.sliding_window_view(samples.astype(np.float64), WINDOW)[::HOP]
    magnitudes = np.abs(np.fft.rfft(frames * _periodic_hann(), FFT))
    spectra: Floats = np.log(magnitudes @ _mel_matrix() + OFFSET)
    return spectra


def examples(samples: NDArray[np.floating]) -> NDArray[np.float32]:
    """Whole examples (N, 96, 64) of 0.96 seconds each, side by side; the incomplete tail is left out."""
    spectra = log_mel(samples)
    count = len(spectra) // STEPS
    return spectra[: count * STEPS].reshape(count, STEPS, BANDS).astype(np.float32)


def _periodic_hann() -> Floats:
    """Without its last point, which would repeat the first: what TensorFlow and MATLAB call periodic."""
    window: Floats = 0.5 - 0.5 * np.cos(2 * np.pi / WINDOW * np.arange(WINDOW))
    return window


def _mel(hertz: Floats) -> Floats:
    """HTK's formula."""
    mel: Floats = 1127.0 * np.log1p(hertz / 700.0)
    return mel


@cache
def _mel_matrix() -> Floats:
    """(257, 64): triangles that are straight in mel, not in hertz; the constant part belongs to none."""
    bins = _mel(np.linspace(0.0, RATE / 2, FFT // 2 + 1))[:, None]
    lowest, highest = _mel(np.array([LOWEST, HIGHEST]))
    edges = np.linspace(lowest, highest, BANDS + 2)
    left, centre, right = edges[:-2], edges[1:-1], edges[2:]
    rising, falling = (bins - left) / (centre - left), (right - bins) / (right - centre)
    matrix: Floats = np.maximum(0.0, np.minimum(rising, falling))
    matrix[0] = 0.0
    return matrix
