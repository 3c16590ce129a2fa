"""Deletion and insertion: how likely is a word when the moments that it is said to need go, or come, first?

Of a clip's moments the heaviest are taken away one after another (deletion), or given one after another
(insertion), by one order of them: the word's evidence, its attention, or chance. A curve's area is the mean
of the word's log-probability over its steps, less that with the whole clip: weights that name what a word
needs make deletion fall early and insertion rise early.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from extractors.features import Features
from models.captioner import Captioner, as_numpy
from models.evidence.reader import take_rows
from models.likelihood import teacher_force


@dataclass(frozen=True)
class Areas:
    """Holds mean losses of log-probability: deletion should be far below 0, insertion near it."""

    deletion: float
    insertion: float


def measure_areas(
    captioner: Captioner,
    features: Features,
    tokens: Sequence[int],
    weights: Mapping[int, NDArray[np.float64]],
) -> list[Areas]:
    """Measures both curves of each word.

    Args:
        captioner: Reads the caption.
        features: The clip's streams, all of T rows.
        tokens: The caption's words.
        weights: By a word's place its weights over the T moments, by which they are taken and given.

    Returns:
        Areas of each word.
    """
    names = {each.name for each in captioner.inputs}
    streams = {name: stream for name, stream in features.items() if name in names}
    return [_measure_word(captioner, streams, tokens, word, row) for word, row in weights.items()]


def _measure_word(
    captioner: Captioner,
    features: Features,
    tokens: Sequence[int],
    word: int,
    weights: NDArray[np.float64],
) -> Areas:
    order, count = np.argsort(-weights, kind="stable"), len(weights)
    kept = [np.arange(count)]
    kept += [np.sort(order[k:]) for k in range(1, count)] + [np.sort(order[:k]) for k in range(1, count)]
    videos = [{name: take_rows(stream, rows) for name, stream in features.items()} for rows in kept]
    with torch.inference_mode():
        targets = torch.tensor([list(tokens[: word + 1])] * len(videos))
        log_p = as_numpy(teacher_force(captioner, captioner.encode(videos), targets).log_p[:, word])
    change = log_p[1:] - log_p[0]
    return Areas(float(change[: count - 1].mean()), float(change[count - 1 :].mean()))
