"""Finds the names of classes whose labels captioners read: Kinetics' actions, ImageNet's and COCO's things.

A label travels as a row of the stream ``labels``: (kind, class, probability), with the time at which it was
seen and the box it was seen in. A captioner is never shown the number of a class but a vector of what it
means, so that it reads classes which no training caption was paired with.
"""

from __future__ import annotations

import torch
from torch import Tensor

from extractors.catalog.labels import STREAM
from extractors.label import KINDS, NAMES
from models.decoding.constraints import FUNCTION_WORDS
from models.inputs import InputStream
from models.vocabulary import split_words

LABELS = STREAM
LABELS_INPUT = InputStream(name=LABELS, width=3)
CLASS_NAMES: tuple[str, ...] = tuple(name for kind in KINDS for name in NAMES[kind])
_COUNTS = torch.tensor([len(NAMES[kind]) for kind in KINDS])
#: Where each kind's classes begin among CLASS_NAMES.
_FIRST = _COUNTS.cumsum(0) - _COUNTS


def find_class_rows(kinds: Tensor, classes: Tensor) -> Tensor:
    """Finds the places among CLASS_NAMES of classes (…) of kinds (…); numbers beyond are clipped."""
    kinds = kinds.clamp(0, len(KINDS) - 1)
    counts, first = _COUNTS.to(kinds.device)[kinds], _FIRST.to(kinds.device)[kinds]
    return first + classes.clamp(min=0).minimum(counts - 1)


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
