"""Tells a captioner what kind of video it is given, as one more stream that nobody extracts.

MSR-VTT's annotations put each clip into one of twenty categories, which STaTS may read (table 4 of its
paper). The number travels with the features, so that training, evaluation and the service hand it on alike;
a video without one is of an unknown kind.
"""

from collections.abc import Collection

import numpy as np
import torch
from torch import Tensor

from extractors.features import Features, Stream, StreamSpec
from models.inputs import Batch, InputStream

CATEGORY = "category"
CATEGORY_INPUT = InputStream(name=CATEGORY, width=1)
CATEGORY_SPEC = StreamSpec(CATEGORY, "", "its number in the training set's annotations")


def make_category_stream(category: int) -> Stream:
    """Makes a stream of one row and one channel, which is the number itself."""
    start = np.zeros(1)
    return Stream(torch.tensor([[float(category)]]), start, start, CATEGORY_SPEC)


def add_category(features: Features, category: int | None) -> Features:
    """Adds the category to a video's features; without one they stay as they are."""
    return features if category is None else {**features, CATEGORY: make_category_stream(category)}


def read_labels(batch: Batch, classes: int) -> Tensor:
    """Reads the categories of B videos as rows (B,) of an embedding with ``classes`` + 1 of them.

    0 for a video of no category, or of one that is not among them; else its number plus 1.
    """
    number = batch.values.flatten(1)[:, 0].round().long()
    is_known = batch.frame_mask.any(1) & (number >= 0) & (number < classes)
    return torch.where(is_known, number + 1, torch.zeros_like(number))


def list_extracted(streams: Collection[str]) -> list[str]:
    """Lists the streams that extractors make: all but the category."""
    return [name for name in streams if name != CATEGORY]
