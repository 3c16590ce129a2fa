"""VGGish on a video's sound, on the clock of its picture.

A row is 0.96 seconds, and the first begins with the first shown frame. Sound beyond the picture's end is
left out. Of the sound behind the last whole row, half a row or more is repeated until it fills one, which
the mask marks as padding; less is left out. Sound too short for any row gives one padded row. A video
without sound gives one row of zeros, masked, over its whole length, and the name tag's ``sampling`` says
``no_audio``. Silence is sound: its rows are real.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from extractors import log_mel
from extractors.features import Stream, StreamSpec
from extractors.request import Audio
from extractors.resampling import resample
from extractors.vggish import CHANNELS, NETWORK, Embedder

#: Seconds of a row, and the shortest tail that becomes one, in samples.
ROW, SHORTEST_TAIL = log_mel.EXAMPLE_HOP / log_mel.RATE, log_mel.EXAMPLE_HOP // 2
NO_AUDIO = "no_audio"


class SoundExtractor:
    """Stream ``sound`` (T, 128), float32.

    embedder: the network and what comes after it. weights_sha256: of its file. batch: rows a forward pass.
    """

    name = NETWORK
    needs = frozenset({"audio"})
    width = CHANNELS

    def __init__(
        self, embedder: Embedder, weights_sha256: str, device: str | torch.device = "cpu", batch: int = 16
    ) -> None:
        self.device, self.batch = torch.device(device), batch
        self.embedder = embedder.to(self.device).eval()
        self.spec = StreamSpec(
            NETWORK, weights_sha256, embedder.options.preprocessing, "0.96 s rows", "torch"
        )

    def describe(self, audio: Audio | None, duration: float) -> Stream:
        """The stream of one video that lasts ``duration`` seconds; audio: at any rate, None where none."""
        if audio is None or not len(audio.samples):
            return self._absent(duration)
        sound = resample(audio.samples, audio.rate, log_mel.RATE)[: round(duration * log_mel.RATE)]
        if not len(sound):
            return self._absent(duration)
        examples, padded = windows(sound)
        start = np.arange(len(examples), dtype=np.float64) * ROW
        end = np.minimum(start + ROW, np.float64(duration))
        mask = torch.ones(len(examples), dtype=torch.bool)
        mask[-1] = not padded
        return Stream(self._rows(examples), start, end, self.spec, mask=mask)

    @torch.inference_mode()
    def _rows(self, examples: NDArray[np.float32]) -> torch.Tensor:
        parts = torch.split(torch.from_numpy(examples), self.batch)
        return torch.cat([self.embedder(part.to(self.device)).cpu() for part in parts])

    def _absent(self, duration: float) -> Stream:
        spec = replace(self.spec, sampling=NO_AUDIO)
        values, mask = torch.zeros(1, CHANNELS), torch.zeros(1, dtype=torch.bool)
        return Stream(values, np.zeros(1), np.full(1, duration), spec, mask=mask)


def windows(sound: NDArray[np.float64]) -> tuple[NDArray[np.float32], bool]:
    """Examples (N, 96, 64) of sound at 16 kHz, one at least, and whether the last is padded."""
    whole = log_mel.examples(sound)
    tail = sound[len(whole) * log_mel.EXAMPLE_HOP :]
    if len(whole) and len(tail) < SHORTEST_TAIL:
        return whole, False
    return np.concatenate([whole, log_mel.examples(np.resize(tail, log_mel.EXAMPLE))]), True
