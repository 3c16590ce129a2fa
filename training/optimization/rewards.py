"""What self-critical training pays for: any weighted sum of CIDEr-D, BLEU-4, METEOR and ROUGE-L."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from extractors.errors import ReelwordError
from training.recipes.recipe import RewardWeights
from training.scores.bootstrap import Floats
from training.scores.cider import CiderD
from training.scores.java import JavaError, find_java
from training.scores.meteor import Meteor, meteor_score
from training.scores.metrics import bleu, bleu_counts, rouge_l_scores

Words = Sequence[str]
References = Mapping[str, Sequence[Words]]
#: From ids, captions as words and whether each has ended, to a score a caption.
Score = Callable[[Sequence[str], Sequence[Words], Sequence[bool]], Floats]

#: From captions and the references of each, as texts, to a score a caption.
TextScore = Callable[[Sequence[str], Sequence[Sequence[str]]], Floats]


class NoReward(ReelwordError, RuntimeError):
    """A metric that the recipe pays for cannot be computed here; the message says why and what to do."""

    code = "no_reward"
    hint = "Install the training group (make setup), or choose a recipe with another reward."


class Rewards:
    """The weighted sum over one set of references. CIDEr-D counts the end of a caption as a word.

    Its scale is CIDEr-D's own, 0 to 10; the others are 0 to 1. METEOR keeps a Java process, which starts
    here and ends with ``close`` or with this program. Raises NoReward where METEOR is paid for and no Java
    runs.
    """

    def __init__(self, weights: RewardWeights, references: References) -> None:
        self._references = references
        self._meteor = _started() if weights.meteor else None
        built: dict[str, Callable[[], Score]] = {
            "cider": lambda: CiderD(references, count_end=True).score,
            "bleu": lambda: self._of_texts(lambda texts, said: bleu(4, bleu_counts(texts, said)) / 100),
            "rouge_l": lambda: self._of_texts(rouge_l_scores),
            "meteor": lambda: self._of_texts(self._meteor_scores),
        }
        self._parts = [(weight, built[name]()) for name, weight in weights if weight]

    def score(self, ids: Sequence[str], captions: Sequence[Words], finished: Sequence[bool]) -> Floats:
        """(captions,) the reward of each. Raises JavaError if METEOR stops or falls silent."""
        return sum(
            (weight * part(ids, captions, finished) for weight, part in self._parts), np.zeros(len(ids))
        )

    def close(self) -> None:
        if self._meteor is not None:
            self._meteor.close()

    def _of_texts(self, score: TextScore) -> Score:
        """A score of captions as texts; whether a caption has ended does not count."""

        def score_words(ids: Sequence[str], captions: Sequence[Words], _: Sequence[bool]) -> Floats:
            texts = [" ".join(words) for words in captions]
            return score(texts, [[" ".join(words) for words in self._references[name]] for name in ids])

        return score_words

    def _meteor_scores(self, texts: Sequence[str], references: Sequence[Sequence[str]]) -> Floats:
        assert self._meteor is not None
        return meteor_score(self._meteor.counts(texts, references))


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
