"""Explains a caption by labels: which of them each word is of, and when, where and by what they were seen."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from extractors.catalog.labels import read_labels
from extractors.label import Label, LabelKind
from models.caption import ChosenMoment, ExplanationPart, MomentsExplanation
from models.captioner import DIGITS, Array, CaptionSteps, as_numpy
from models.decoding.constraints import FUNCTION_WORDS
from models.labels.classes import LABELS, share_stem

#: What is said of a label of each kind.
TITLES: dict[LabelKind, str] = {"motion": "by motion", "picture": "in the picture", "box": "in a box"}
#: From this share on a word is told to be of a label that has other words, as ``rider`` may be of ``moped``.
LEADING_SHARE = 0.5
#: The same where the caption is a sentence that was written of the label's class, as ``arrow`` is of archery.
WRITTEN_SHARE = 0.2
#: A label that gives less to a word of its own than this, and is less probable, is not told.
LEAST_SHARE, LEAST_PROBABILITY = 0.02, 0.2


def explain_labels(caption: CaptionSteps, shares: Tensor, written_of: Tensor) -> list[ExplanationPart]:
    """Shows what was recognised, and which of it each word is of; nothing of a video without labels.

    Args:
        caption: Its steps.
        shares: (words, L + 1), what each label and the picture give to each word.
        written_of: bool (L,), of which labels' classes the caption was written; of none if it is no sentence.
    """
    stream = caption.features.get(LABELS)
    if stream is None:
        return []
    labels = read_labels(stream)
    positive = as_numpy(shares).clip(min=0)
    positive = np.concatenate([positive[:, : len(labels)], positive[:, -1:]], 1)
    weights = positive / np.maximum(positive.sum(1, keepdims=True), 1e-9)
    origins = [
        find_origin(word, row, labels, written_of.tolist())
        for word, row in zip(caption.words, weights, strict=True)
    ]
    return [
        MomentsExplanation(
            name=LABELS,
            title="What was recognised",
            note="Names that networks give to motion, picture and boxes, and which of them a word is of.",
            caption=[
                _make_moment(caption, label, label.probability)
                for label in labels
                if label.probability >= LEAST_PROBABILITY
            ],
            words=[
                [] if origin is None else [_make_moment(caption, labels[origin], float(row[origin]))]
                for row, origin in zip(weights, origins, strict=True)
            ],
        )
    ]


def find_origin(word: str, weights: Array, labels: list[Label], written_of: Sequence[bool]) -> int | None:
    """Finds the label that a word is of: one whose name has the word, or one that gives most of it.

    Args:
        word: Of the caption.
        weights: (L + 1,), the share of each label in it, and the picture's at last.
        labels: L.
        written_of: Of each label, whether the whole caption was written of its class.
    """
    named = [
        row
        for row, label in enumerate(labels)
        if share_stem(word, label.name)
        and (weights[row] >= LEAST_SHARE or label.probability >= LEAST_PROBABILITY)
    ]
    if named:
        return max(named, key=lambda row: (float(weights[row]), labels[row].probability))
    if word in FUNCTION_WORDS or not labels:
        return None
    best = int(weights[:-1].argmax())
    return best if weights[best] >= (WRITTEN_SHARE if written_of[best] else LEADING_SHARE) else None


def _make_moment(caption: CaptionSteps, label: Label, weight: float) -> ChosenMoment:
    """Puts a label on the captioner's clock: the moment nearest to the middle of its time."""
    middle = (label.start + label.end) / 2
    moment = int(np.abs(caption.times.mean(1) - middle).argmin())
    return ChosenMoment(
        moment=moment,
        time=round(label.start, 4),
        end=round(label.end, 4),
        weight=round(weight, DIGITS),
        title=TITLES[label.kind],
        text=label.name,
        box=None if label.box is None else [round(edge, 4) for edge in label.box],
    )
