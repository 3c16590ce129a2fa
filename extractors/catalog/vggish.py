"""Extracts features of a video's sound by VGGish, on the clock of its picture.

A row is 0.96 seconds, and the first begins with the first shown frame. Sound beyond the picture's end is
left out. Of the sound after the last whole row, half a row or more is repeated until it fills one, which
the mask marks as padding; less is left out. Sound too short for any row gives one padded row. A video
without sound gives one row of zeros, masked, over its whole length, and the name tag's ``sampling`` says
``no_audio``. Silence is sound: its rows are real.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from extractors.engines.engine_choice import choose_engine
from extractors.extractor import ExtractorOptions, UnknownExtractor
from extractors.features import Audio, Stream, StreamSpec
from extractors.networks.vggish import (
    CHANNELS,
    NETWORK,
    Components,
    PrincipalComponents,
    VGGish,
    VGGishEmbedder,
    VGGishOptions,
    components_from_checkpoint,
    from_checkpoint,
)
from extractors.preprocessing import log_mel
from extractors.preprocessing.log_mel import resample
from extractors.pretrained.load import load_pretrained
from extractors.windows import Windows

#: Seconds of a row, and the shortest tail that becomes one, in samples.
ROW, SHORTEST_TAIL = log_mel.EXAMPLE_HOP / log_mel.RATE, log_mel.EXAMPLE_HOP // 2
NO_AUDIO = "no_audio"
#: Options by their names, for extractors such as ``vggish:no_relu+pca_rounded``.
COMPONENTS: dict[str, Components] = {"pca_raw": "raw", "pca_rounded": "rounded", "pca_truncated": "truncated"}


@dataclass(frozen=True)
class SoundRow:
    """Samples ``begin`` to ``end`` at 16 kHz."""

    begin: int
    end: int
    padded: bool  #: whether they have to be repeated to fill it


class VGGishExtractor:
    """Makes the stream ``<name>`` (T, 128), float32.

    embedder: the network and what comes after it. weights_sha256: of its file. Of more rows than
    ``windows.most`` so many are taken, spread over the whole time; the rest of ``windows`` concerns frames.
    """

    needs = frozenset({"audio"})
    width = CHANNELS
    #: FFmpeg makes it from what is stored. Its filter bends what lies near half the rate, VGGish hears up
    #: to 7.5 kHz: so it is asked for twice the rate, and extractors/preprocessing/log_mel.py halves it.
    rate = 2 * log_mel.RATE

    def __init__(
        self,
        name: str,
        embedder: VGGishEmbedder,
        weights_sha256: str,
        options: ExtractorOptions | None = None,
    ) -> None:
        options = options or ExtractorOptions()
        self.name, self.most = name, options.windows_over(Windows()).most
        self.batch = 16 if options.device.type == "cpu" else 64
        self.engine = choose_engine(
            embedder,
            torch.zeros(2, log_mel.STEPS, log_mel.BANDS),
            f"{NETWORK} {weights_sha256} {embedder.options}",
            options,
        )
        self.spec = StreamSpec(
            NETWORK,
            weights_sha256,
            embedder.options.preprocessing,
            "0.96 s rows",
            self.engine.name,
            self.engine.precision,
        )

    def extract(self, audio: Audio | None, duration: float) -> dict[str, Stream]:
        """Extracts a video of ``duration`` seconds; audio: at any rate, None where there is none."""
        length = 0
        if audio is not None:
            length = min(len(audio.samples) * log_mel.RATE // audio.rate, round(duration * log_mel.RATE))
        if audio is None or length < 1:
            return {self.name: self._make_absent(duration)}
        rows = select_evenly(split_rows(length), self.most)
        start = np.array([row.begin for row in rows]) / log_mel.RATE
        end = np.minimum(start + ROW, np.float64(duration))
        mask = torch.tensor([not row.padded for row in rows])
        return {self.name: Stream(self._compute_values(audio, rows), start, end, self.spec, mask=mask)}

    def _compute_values(self, audio: Audio, rows: Sequence[SoundRow]) -> Tensor:
        parts = []
        for at in range(0, len(rows), self.batch):
            examples = np.stack([compute_example(audio, row) for row in rows[at : at + self.batch]])
            parts.append(self.engine(torch.from_numpy(examples)).cpu())
        return torch.cat(parts)

    def _make_absent(self, duration: float) -> Stream:
        spec = replace(self.spec, sampling=NO_AUDIO)
        values, mask = torch.zeros(1, CHANNELS), torch.zeros(1, dtype=torch.bool)
        return Stream(values, np.zeros(1), np.full(1, duration), spec, mask=mask)


def split_rows(length: int) -> list[SoundRow]:
    """Splits so many samples into rows, one at least."""
    hop, size = log_mel.EXAMPLE_HOP, log_mel.EXAMPLE
    whole = max(0, (length - size) // hop + 1)
    rows = [SoundRow(begin, begin + size, False) for begin in range(0, whole * hop, hop)]
    if not rows or length - whole * hop >= SHORTEST_TAIL:
        rows.append(SoundRow(whole * hop, length, True))
    return rows


def select_evenly(rows: list[SoundRow], most: int) -> list[SoundRow]:
    """Selects at most ``most`` rows, over the whole time."""
    if len(rows) <= most:
        return rows
    return [rows[int((place + 0.5) * len(rows) / most)] for place in range(most)]


def compute_example(audio: Audio, row: SoundRow) -> NDArray[np.float32]:
    """Computes the network's input of one row: (96, 64)."""
    sound = resample(audio.samples, audio.rate, log_mel.RATE, row.begin, row.end)
    shown: NDArray[np.float32] = log_mel.compute_examples(np.resize(sound, log_mel.EXAMPLE))[0]
    return shown


def parse_options(name: str) -> VGGishOptions:
    """Reads the options in ``vggish``, ``vggish:no_relu``, ``vggish:no_relu+pca_rounded``.

    Raises UnknownExtractor.
    """
    _, colon, words = name.partition(":")
    relu = True
    components: Components = "no"
    for word in words.split("+") if colon else []:
        if word == "no_relu":
            relu = False
        elif word in COMPONENTS:
            components = COMPONENTS[word]
        else:
            choices = ", ".join(["no_relu", *COMPONENTS])
            raise UnknownExtractor(f"{name!r}: vggish: is followed by {choices}, joined by +")
    return VGGishOptions(relu, components)


def make(name: str, options: ExtractorOptions) -> VGGishExtractor:
    """Makes the extractor with its weights, and the principal components where they are asked for.

    Raises WeightsError, UnknownExtractor.
    """
    vggish_options = parse_options(name)
    network, weights = load_pretrained("vggish", options.weights, from_checkpoint, VGGish)
    components = None
    if vggish_options.components != "no":
        components, second = load_pretrained(
            "vggish_pca", options.weights, components_from_checkpoint, PrincipalComponents
        )
        weights = weights if second == weights else f"{weights}+{second}"
    return VGGishExtractor(name, VGGishEmbedder(network, components, vggish_options), weights, options)
