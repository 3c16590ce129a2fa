"""The training loop on real videos: the same steps, judged by whole videos."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from models.captioner import AnyCaptioner
from models.decoding.decode import decode
from models.inputs import order_inputs
from training.batches.pseudo_video import Shots
from training.batches.video_batches import CaptionedVideo, VideoBatches
from training.optimization.run_folder import learner_of
from training.optimization.trainer import Trainer
from training.optimization.validation import See, as_it_is, judging_options
from training.scores.cider import CiderD

#: Videos that are captioned together.
GROUP = 16


@dataclass(frozen=True, eq=False)
class VideoTrainer(Trainer):
    """A trainer whose batches and held-out items are real videos, which have no shots of other ones."""

    batches: VideoBatches  # type: ignore[assignment]
    held_out: Sequence[CaptionedVideo]  # type: ignore[assignment]

    def tune(self, captioner: AnyCaptioner) -> None:
        """Cross-entropy for ``recipe.steps``, the weights it starts from being the first to be surpassed."""
        phase = self.phase("cross_entropy", self.recipe.steps, self.cross_entropy, self.on_whole_pictures)
        self.go_through(replace(phase, keeps_start=True), learner_of(self.recipe, captioner))

    @property
    def shots(self) -> None:
        return None

    def cider(self, captioner: AnyCaptioner, shots: Shots | None = None, see: See = as_it_is) -> float:
        """Of the held-out videos, whole, by a beam search of 3."""
        del shots
        captioner.eval()
        scorer = CiderD({item.id: item.captions for item in self.held_out})
        captions = list(self._captions(captioner, see))
        return 100 * float(scorer.score([item.id for item in self.held_out], captions).mean())

    def _captions(self, captioner: AnyCaptioner, see: See) -> Iterator[list[str]]:
        options = judging_options(self.recipe.max_length)
        for start in range(0, len(self.held_out), GROUP):
            batches = self.batches.whole(self.held_out[start : start + GROUP])
            with torch.inference_mode(), self.autocast():
                memory = captioner.encode_batches(order_inputs(captioner, batches))
                for hypotheses in decode(captioner, see(memory), options):
                    yield captioner.vocabulary.decode(hypotheses[0].tokens)
