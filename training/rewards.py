"""What self-critical training pays for: any weighted sum of CIDEr-D, BLEU-4, METEOR and ROUGE-L."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from training.cider import CiderD
from training.fast_scores import Floats, RougeL, SentenceBleu, Words
from training.java import JavaError, find_java
from training.meteor import Meteor, meteor_score
from training.recipes import RewardWeights

References = Mapping[str, Sequence[Words]]
#: From ids, captions as words and whether each has ended, to a score a caption.
Score = Callable[[Sequence[str], Sequence[Words], Sequence[bool]], Floats]


class NoReward(RuntimeError):
    """A metric that the recipe pays for cannot be computed here; the message says why and what to do."""


class Rewards:
    """The weighted sum over one set of references. CIDEr-D counts the end of a caption as a word.

    Its scale is CIDEr-D's own, 0 to 10; the others are 0 to 1. METEOR keeps a Java process, which starts
    here and ends with ``close`` or with this program. Raises NoReward where METEOR is paid for and no Java
    runs.
    """

    def __init__(self, weights: RewardWeights, references: References) -> None:
        self._references = references
        self._meteor = _started() if weights.meteor else None
        made: dict[str, Callable[[], Score]] = {
            "cider": lambda: CiderD(references, count_end=True).score,
            "bleu": lambda: _whatever_the_end(SentenceBleu(references).score),
            "rouge_l": lambda: _whatever_the_end(RougeL(references).score),
            "meteor": lambda: _whatever_the_end(self._meteor_scores),
        }
        self._parts = [(weight, made[name]()) for name, weight in weights if weight]

    def score(self, ids: Sequence[str], captions: Sequence[Words], finished: Sequence[bool]) -> Floats:
        """(captions,) the reward of each. Raises JavaError if METEOR stops or falls silent."""
        return sum(
            (weight * part(ids, captions, finished) for weight, part in self._parts), np.zeros(len(ids))
        )

    def close(self) -> None:
        if self._meteor is not None:
            self._meteor.close()

    def _meteor_scores(self, ids: Sequence[str], captions: Sequence[Words]) -> Floats:
        assert self._meteor is not None
        texts = [" ".join(words) for words in captions]
        references = [[" ".join(words) for words in self._references[name]] for name in ids]
        return meteor_score(self._meteor.counts(texts, references))


def _whatever_the_end(score: Callable[[Sequence[str], Sequence[Words]], Floats]) -> Score:
    return lambda ids, captions, _: score(ids, captions)


def require(weights: RewardWeights) -> None:
    """Raises NoReward at once where training would raise it after all its supervised steps."""
    if weights.meteor:
        _started().close()


def _started() -> Meteor:
    try:
        return Meteor(find_java())
    except (JavaError, ModuleNotFoundError) as error:
        raise NoReward(
            f"METEOR as a reward needs Java and the scorers of `make setup-train`: {error} "
            "Give it no weight to train without it."
        ) from error
