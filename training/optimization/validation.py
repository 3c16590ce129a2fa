"""CIDEr-D on held-out pictures, quick enough to choose checkpoints by."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from models.captioner import AnyCaptioner
from models.decoding.decode import DecodingOptions, decode
from models.inputs import order_inputs
from models.vocabulary import Vocabulary
from training.batches.picture_batches import TrainingItem
from training.batches.pseudo_video import Sample, Shots, batch_of, sample, whole
from training.precision import autocast
from training.scores.cider import CiderD

GROUP = 50
#: The pseudo-videos of every validation are the same.
SHOTS_SEED = 2019


def judging_options(max_length: int) -> DecodingOptions:
    """What checkpoints are chosen by. Words may return, so that runs compare with those of before."""
    return DecodingOptions(beam_size=3, length_penalty=0.5, max_length=max_length, name_once=False)


#: From a captioner's memory to the one that it writes from.
See = Callable[[Any], Any]


def as_it_is(memory: Any) -> Any:
    return memory


class Validation:
    """Beam search of 3; document frequencies are the held-out set's own.

    shots: whole pictures where it is None, else pseudo-videos like those that are trained on. see: which of
    its memories the captioner writes from.
    """

    def __init__(
        self,
        items: Sequence[TrainingItem],
        vocabulary: Vocabulary,
        max_length: int,
        shots: Shots | None = None,
        see: See = as_it_is,
    ) -> None:
        self.items, self.vocabulary, self.shots, self.see = items, vocabulary, shots, see
        self.options = judging_options(max_length)
        self.scorer = CiderD({item.id: item.captions for item in items})

    def cider(self, captioner: AnyCaptioner, precision: torch.dtype) -> float:
        """×100, as papers print it."""
        captioner.eval()
        captions = list(self._captions(captioner, precision))
        return 100 * float(self.scorer.score([item.id for item in self.items], captions).mean())

    def _captions(self, captioner: AnyCaptioner, precision: torch.dtype) -> Iterator[list[str]]:
        for start in range(0, len(self.items), GROUP):
            samples = self._samples(start)
            with torch.inference_mode(), autocast(precision):
                batches = batch_of(samples)
                memory = captioner.encode_batches(order_inputs(captioner, batches))
                for hypotheses in decode(captioner, self.see(memory), self.options):
                    yield self.vocabulary.decode(hypotheses[0].tokens)

    def _samples(self, start: int) -> list[Sample]:
        """A group's, of one length."""
        group = self.items[start : start + GROUP]
        if self.shots is None:
            return [whole(item.pictures) for item in group]
        rng = np.random.default_rng((SHOTS_SEED, start))
        steps, others = self.shots.draw_length(rng), [item.pictures for item in self.items]
        return [sample(item.pictures, others, steps, self.shots, rng) for item in group]
