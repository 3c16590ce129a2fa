"""Explains a caption by labels: which of them each word is of, and when, where and by what they were seen."""

import numpy as np
from torch import Tensor

from extractors.catalog.labels import read_labels
from extractors.label import Label, LabelKind
from models.caption import ChosenMoment, ExplanationPart, MomentsExplanation
from models.captioner import DIGITS, Array, CaptionSteps, as_numpy
from models.decoding.constraints import FUNCTION_WORDS
from models.labels.expected_meaning import LABELS
from models.vocabulary import split_words

#: What is said of a label of each kind.
TITLES: dict[LabelKind, str] = {"motion": "by motion", "picture": "in the picture", "box": "in a box"}
#: From this share on a word is told to be of a label that has other words, as ``rider`` may be of ``moped``.
LEADING_SHARE = 0.5
#: The same where the caption was recalled and the word stands in what was written of the label's class, as
#: ``arrow`` does of archery.
WRITTEN_SHARE = 0.2
#: A label that gives less to a word of its own than this, and is less probable, is not told.
LEAST_SHARE, LEAST_PROBABILITY = 0.02, 0.2


def explain_labels(caption: CaptionSteps, shares: Tensor, written: Tensor) -> list[ExplanationPart]:
    """Shows what was recognised, and which of it each word is of; nothing of a video without labels.

    Args:
        caption: Its steps.
        shares: (words, L + 1), what each label and the picture give to each word.
        written: bool (words, L), whether a word stands in what was written of a label's class; nowhere in a
            caption that was not recalled.
    """
    stream = caption.features.get(LABELS)
    if stream is None:
        return []
    labels = read_labels(stream)
    positive = as_numpy(shares).clip(min=0)
    positive = np.concatenate([positive[:, : len(labels)], positive[:, -1:]], 1)
    weights = positive / np.maximum(positive.sum(1, keepdims=True), 1e-9)
    origins = [
        find_origins(*word, labels) for word in zip(caption.words, weights, as_numpy(written), strict=True)
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
                sorted(
                    (_make_moment(caption, labels[origin], float(row[origin])) for origin in of_word),
                    key=lambda moment: (moment.time, moment.weight or 0.0),
                )
                for row, of_word in zip(weights, origins, strict=True)
            ],
        )
    ]


def find_origins(word: str, weights: Array, written: Array, labels: list[Label]) -> list[int]:
    """Finds the labels that a word is of, the chief one first.

    That is the one whose name has the word; else the one that gives most of it, and those that give a good
    part of it and of whose class a sentence with this word was written.

    Args:
        word: Of the caption.
        weights: (L + 1,), the share of each label in it, and the picture's at last.
        written: bool (L,), whether the word stands in what was written of a label's class.
        labels: L.
    """
    named = [
        row
        for row, label in enumerate(labels)
        if share_stem(word, label.name)
        and (weights[row] >= LEAST_SHARE or label.probability >= LEAST_PROBABILITY)
    ]
    if named:
        return [max(named, key=lambda row: (float(weights[row]), labels[row].probability))]
    if word in FUNCTION_WORDS:
        return []
    rows = range(len(labels))
    leading = [row for row in rows if weights[row] >= (WRITTEN_SHARE if written[row] else LEADING_SHARE)]
    return sorted(leading, key=lambda row: -float(weights[row]))


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


def share_stem(word: str, label: str) -> bool:
    """Tells whether a word is one of a label's, in whatever form: ``flips`` is of ``flipping pancake``.

    Words that name nothing are no label's.
    """
    stems = (_stem(other) for other in split_words(label) if other not in FUNCTION_WORDS)
    return word not in FUNCTION_WORDS and _stem(word) in stems


def _stem(word: str) -> str:
    """Takes the commonest endings off, and a doubled consonant before them."""
    for ending in ("ing", "ed", "es", "s", "e"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word.removesuffix(ending)
            break
    return word[:-1] if len(word) > 3 and word[-1] == word[-2] else word
