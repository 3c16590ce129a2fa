"""Tells which labels each word of a caption is of: by which network, when, and in which box."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from models.caption import LabelReading, NamedLabel
from models.captioner import Array, CaptionSteps, as_numpy, rounded
from models.decoding.constraints import FUNCTION_WORDS
from models.labels.classes import KINDS, LABELS, share_stem

#: From this share on a word is told to come from a label that it is not a word of, as ``rider`` may from ``moped``.
LEADING_SHARE = 0.5


def describe_labels(caption: CaptionSteps, shares: Tensor) -> LabelReading | None:
    """Describes the labels that count for one caption; None where the video has none.

    caption: its steps. shares: (words, L + 1), what each label and the picture give to each word.
    """
    stream = caption.features.get(LABELS)
    if stream is None:
        return None
    labels = [_name_label(caption, row) for row in range(len(stream))]
    positive = as_numpy(shares).clip(min=0)
    positive = np.concatenate([positive[:, : len(labels)], positive[:, -1:]], 1)
    weights = positive / np.maximum(positive.sum(1, keepdims=True), 1e-9)
    origins = [_find_origin(word, row, labels) for word, row in zip(caption.words, weights, strict=True)]
    return LabelReading(labels=labels, weights=rounded(weights[:, :-1]), origins=origins)


def _name_label(caption: CaptionSteps, row: int) -> NamedLabel:
    stream = caption.features[LABELS]
    number, place, probability = stream.values[row].flatten().tolist()
    kind, names = list(KINDS.items())[int(number)]
    boxed = kind == "box" and stream.boxes is not None
    return NamedLabel(
        name=names[int(place)],
        source=kind,
        probability=round(probability, 4),
        start=round(float(stream.start[row]), 3),
        end=round(float(stream.end[row]), 3),
        box=rounded(as_numpy(stream.boxes[row, 0]), 4) if boxed and stream.boxes is not None else None,
    )


def _find_origin(word: str, weights: Array, labels: list[NamedLabel]) -> int | None:
    """Finds the label that a word is of: the surest whose name has the word, or one that gives most of it."""
    own = [row for row, label in enumerate(labels) if share_stem(word, label.name)]
    if own:
        return max(own, key=lambda row: (float(weights[row]), labels[row].probability))
    if word in FUNCTION_WORDS or not labels:
        return None
    best = int(weights[:-1].argmax())
    return best if weights[best] >= LEADING_SHARE else None
