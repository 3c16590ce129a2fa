"""Computes the rewards of self-critical training: any weighted sum of CIDEr-D, BLEU-4, METEOR and ROUGE-L."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from extractors.errors import ReelwordError
from training.recipes.recipe import RewardWeights
from training.scores.bootstrap import Floats
from training.scores.cider import CiderD
from training.scores.java import JavaError, find_java
from training.scores.meteor import Meteor, compute_meteor
from training.scores.metrics import compute_bleu, compute_rouge_l, count_bleu

Words = Sequence[str]
References = Mapping[str, Sequence[Words]]
#: From ids, captions as words and whether each has ended, to a score a caption.
Score = Callable[[Sequence[str], Sequence[Words], Sequence[bool]], Floats]

#: Stands for a caption's end where a metric counts words.
END = "eos"

#: From captions and the references of each, as texts, to a score a caption.
TextScore = Callable[[Sequence[str], Sequence[Sequence[str]]], Floats]


class NoReward(ReelwordError, RuntimeError, code="no_reward"):
    """A metric that the recipe pays for cannot be computed here; the message says why and what to do."""

    hint = "Install the training group (make setup), or choose a recipe with another reward."


class Rewards:
    """Computes the weighted sum over one set of references. Each metric counts a caption's end as a word.

    Its scale is CIDEr-D's own, 0 to 10; the others are 0 to 1. METEOR keeps a Java process, which starts
    here and ends with ``close`` or with this program. Raises NoReward where METEOR is paid for and no Java
    runs.
    """

    def __init__(self, weights: RewardWeights, references: References) -> None:
        self._references = references
        self._meteor = _start_meteor() if weights.meteor else None
        built: dict[str, Callable[[], Score]] = {
            "cider": lambda: CiderD(references, count_end=True).score,
            "bleu": lambda: self._score_texts(
                lambda texts, said: compute_smoothed_bleu(count_bleu(texts, said))
            ),
            "rouge_l": lambda: self._score_texts(compute_rouge_l),
            "meteor": lambda: self._score_texts(self._compute_meteor),
        }
        self._parts = [(weight, built[name]()) for name, weight in weights if weight]

    def score(self, ids: Sequence[str], captions: Sequence[Words], finished: Sequence[bool]) -> Floats:
        """Computes the reward of each caption, (captions,).

        Args:
            ids: of the videos, one a caption; they may repeat.
            captions: as words.
            finished: whether each has ended, and was not cut.

        Raises:
            JavaError: METEOR stops or falls silent.
        """
        return sum(
            (weight * part(ids, captions, finished) for weight, part in self._parts), np.zeros(len(ids))
        )

    def close(self) -> None:
        """Ends METEOR's process, if there is one."""
        if self._meteor is not None:
            self._meteor.close()

    def _score_texts(self, score: TextScore) -> Score:
        """Makes a score of words of one of texts."""

        def score_words(ids: Sequence[str], captions: Sequence[Words], finished: Sequence[bool]) -> Floats:
            texts = [
                " ".join([*words, END] if has_ended else words)
                for words, has_ended in zip(captions, finished, strict=True)
            ]
            return score(
                texts, [[" ".join([*words, END]) for words in self._references[name]] for name in ids]
            )

        return score_words

    def _compute_meteor(self, texts: Sequence[str], references: Sequence[Sequence[str]]) -> Floats:
        assert self._meteor is not None
        return compute_meteor(self._meteor.count_matches(texts, references))


def compute_smoothed_bleu(counts: Floats) -> Floats:
    """Computes BLEU-4 (n,) in [0, 1] of captions by their counts (n, 10).

    One is added to the counts of two words and more (Lin & Och 2004), as where sentences are scored alone: a
    caption without four words in a row of a reference's would else earn nothing, however near it comes.
    """
    smoothed = counts.copy()
    smoothed[:, [3, 4, 5, 7, 8, 9]] += 1
    return compute_bleu(4, smoothed) / 100


def check_rewards(weights: RewardWeights) -> None:
    """Checks at once that rewards can be computed, and not after all supervised steps. Raises NoReward."""
    if weights.meteor:
        _start_meteor().close()


def _start_meteor() -> Meteor:
    try:
        return Meteor(find_java())
    except (JavaError, ModuleNotFoundError) as error:
        raise NoReward(
            f"METEOR as a reward needs Java and the scorers of `make setup-train`: {error} "
            "Give it no weight to train without it."
        ) from error
