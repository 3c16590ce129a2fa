"""A small captioner that knows labels and remembers sentences, and videos with labels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from extractors.features import Features, Stream
from models.captioners.labelled.network import LabelledSTaTS
from models.captioners.stats.config import STaTSConfig
from models.labels.expected_meaning import LABELS, MeaningConfig
from models.labels.labelled_captioner import LabelledConfig, RememberedConfig
from models.vocabulary import Vocabulary
from tests.models.tiny import SPEC, WORDS, randomised, stats_config, videos

#: (kind, class, probability) of the labels of the three videos; the last has none.
ROWS: tuple[list[tuple[int, int, float]], ...] = (
    [(0, 3, 0.9), (0, 7, 0.05), (1, 20, 0.4)],
    [(2, 0, 0.7)],
    [],
)
#: Ids of the sentences that are remembered.
SENTENCES = ([4, 5, 6], [7, 8, 9, 10], [11, 12, 4], [13, 14, 15, 16, 17])


def tiny_labelled(seed: int = 0, sentences: int = 4, **meaning: object) -> LabelledSTaTS:
    """STaTS of few widths, all weights random, with the first of SENTENCES."""
    config = LabelledConfig[STaTSConfig](
        writer=stats_config(),
        meaning=MeaningConfig.model_validate({"texts": 6, **meaning}),
        remembered=RememberedConfig(sentences=sentences, words=6, recalled=2, places=4),
    )
    captioner = LabelledSTaTS(config, Vocabulary(WORDS))
    randomised(captioner, seed)
    for buffer in (captioner.meaning.texts, captioner.meaning.common, captioner.typical):
        torch.nn.init.normal_(buffer, std=0.5)
    for row, sentence in enumerate(SENTENCES[:sentences]):
        captioner.remembered[row, : len(sentence)] = torch.tensor(sentence)
    with torch.no_grad():
        captioner.lengths.copy_(captioner.meaning.measure_lengths(captioner.remembered.long()))
    return captioner.eval()


def label_stream(rows: Sequence[tuple[int, int, float]]) -> Stream:
    """A stream of labels, one second each, in the left upper quarter."""
    start = np.arange(len(rows), dtype=np.float64)
    boxes = torch.tensor([[0.0, 0.0, 0.5, 0.5]]).expand(len(rows), 1, 4).clone()
    return Stream(torch.tensor(rows).reshape(-1, 1, 3).float(), start, start + 1, SPEC, boxes=boxes)


def labelled_videos() -> list[Features]:
    """The videos of all tests, with ROWS; one without labels lacks the stream."""
    pairs = zip(videos(), ROWS, strict=True)
    return [{**video, LABELS: label_stream(rows)} if rows else video for video, rows in pairs]
