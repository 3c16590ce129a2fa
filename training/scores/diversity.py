"""Measures how varied captions are, whatever their references say.

Li et al., "A Diversity-Promoting Objective Function for Neural Conversation Models" (NAACL 2016): distinct-n
is the number of different n-grams over the number of all. Captioners that write the same sentence of
everything score well on n-grams of references, and show here.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class Diversity:
    """Holds counts of different words and captions of a set; shares are in per cent."""

    distinct_1: float  #: different words of all words
    distinct_2: float  #: different pairs of neighbouring words of all pairs
    words: int  #: how many different words are used
    different: int  #: how many different captions there are
    novel: float | None  #: captions that are none of the training captions; None where these were not given


def measure_diversity(captions: Sequence[str], training: Collection[str] | None = None) -> Diversity:
    """Measures tokenised captions, one or more.

    captions: tokens joined by spaces. training: the training captions in the same form, None for none.
    """
    sentences = [caption.split() for caption in captions]
    words = [word for sentence in sentences for word in sentence]
    pairs = [pair for sentence in sentences for pair in pairwise(sentence)]
    seen = None if training is None else frozenset(training)
    novel = None if seen is None else 100 * sum(each not in seen for each in captions) / len(captions)
    return Diversity(
        100 * len(set(words)) / max(1, len(words)),
        100 * len(set(pairs)) / max(1, len(pairs)),
        len(set(words)),
        len(set(captions)),
        novel,
    )
