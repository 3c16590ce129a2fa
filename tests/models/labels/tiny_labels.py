"""A small captioner that reads labels, and videos with labels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from extractors.features import Features, Stream
from models.captioners.registry import CAPTIONERS
from models.labels.classes import LABELS
from models.labels.expected_meaning import MeaningConfig
from models.labels.label_reader import LabelReaderConfig
from models.labels.labelled_captioner import LabelledCaptioner
from models.vocabulary import Vocabulary
from tests.models.tiny import SPEC, WORDS, randomised, stats_config, videos

#: (kind, class, probability) of the labels of the three videos; the last has none.
ROWS = ([(0, 3, 0.9), (0, 7, 0.05), (1, 20, 0.4)], [(2, 0, 0.7)], [])


def tiny_labelled(seed: int = 0, **meaning: object) -> LabelledCaptioner:
    """STaTS of few widths with a reader, all weights random."""
    kind = CAPTIONERS["labelled_stats"]
    config = kind.config_class(
        writer=stats_config(),
        labels=LabelReaderConfig(texts=6, width=4, dropped=0.5),
        meaning=MeaningConfig.model_validate({"width": 6, **meaning}),
    )
    captioner = kind(config, Vocabulary(WORDS))
    assert isinstance(captioner, LabelledCaptioner)
    randomised(captioner, seed)
    torch.nn.init.normal_(captioner.reader.texts, std=0.5)
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
