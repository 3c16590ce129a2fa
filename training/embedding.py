"""Training the video-semantic embedding that picks among captions (models/fusion.py, after section 2.3).

The loss is the hinge on the hardest negatives. From random weights that alone can collapse all sentences
into one point (reported of VSE++), so that at first the mean over all negatives that violate the margin has
a part in it, which shrinks to nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from models.fusion import SemanticEmbedding
from training.dataset import Captioned, TrainingBatch
from training.learning import learner_of
from training.loop import Scores, Trainer
from training.losses import pad_captions
from training.pseudo_video import batch_of, whole
from training.run import Learner

#: The share of the steps in which easy negatives count too.
EASY_SHARE = 0.2
GROUP = 100
RANKS = (1, 5, 10)


def train_embedding(trainer: Trainer, embedding: SemanticEmbedding) -> None:
    """``recipe.steps`` of the ranking loss; resumes from the run's folder where there is one."""
    steps = trainer.recipe.steps

    def loss(learner: Learner, batch: TrainingBatch, step: int) -> dict[str, Tensor]:
        network: Any = learner.captioner
        with trainer.autocast():  # without the GRU, which has no half precision on a CPU
            videos = network.encode_batches(batch.of(network))
        sentences = network.sentences(batch.targets)
        hardest = network.loss(videos, sentences)
        easy = max(0.0, 1 - step / (EASY_SHARE * steps))
        violating = violations(videos, sentences, network.config.margin)
        return {"total": (1 - easy) * hardest + easy * violating, "loss": hardest}

    def judge(network: Any) -> Scores:
        return Recall(trainer.held_out, trainer.recipe.max_length).of(network)

    phase = trainer.phase("embedding", steps, loss, judge)
    trainer.go_through(phase.judged_by("recall"), learner_of(trainer.recipe, embedding))


def violations(videos: Tensor, sentences: Tensor, margin: float) -> Tensor:
    """The mean hinge of all negatives that violate the margin; videos (B, d), sentences (B·K, d)."""
    relevance = videos @ sentences.T
    own = F.one_hot(torch.arange(len(videos)).repeat_interleave(len(sentences) // len(videos))).T.bool()
    true = relevance[own.to(relevance.device)]  # row by row: the sentences in their order
    hinge = (margin - true + relevance).relu()  # each sentence against other videos
    best = relevance.masked_fill(~own, -torch.inf).amax(1, keepdim=True)
    other = (margin - best + relevance).relu()  # each video against others' sentences
    both = torch.stack([hinge, other]).masked_fill(own, 0.0)
    violating: Tensor = both.sum() / (both > 0).sum().clamp(min=1)
    return violating


@dataclass(frozen=True, eq=False)
class Recall:
    """Every caption of the items is looked up among their videos."""

    items: Sequence[Captioned]
    max_length: int

    def of(self, embedding: Any) -> Scores:
        """Per cent of captions whose video is the most relevant, or among 5, or 10; "recall" is their mean.

        A video that is as relevant as the true one stands before it.
        """
        embedding.eval()
        with torch.inference_mode():
            relevance = self._sentences(embedding) @ self._videos(embedding).T
        owner = torch.tensor([i for i, item in enumerate(self.items) for _ in item.captions])
        true = relevance.gather(1, owner.unsqueeze(1))
        better = (relevance >= true).sum(1) - 1
        found = {f"recall_{rank}": 100 * float((better < rank).float().mean()) for rank in RANKS}
        return {"recall": sum(found.values()) / len(found), **found}

    def _videos(self, embedding: Any) -> Tensor:
        parts = []
        for start in range(0, len(self.items), GROUP):
            batches = batch_of([whole(item.pictures) for item in self.items[start : start + GROUP]])
            parts.append(embedding.encode_batches([batches[s.name] for s in embedding.config.streams]))
        return torch.cat(parts)

    def _sentences(self, embedding: Any) -> Tensor:
        captions = [embedding.vocabulary.encode(c) for item in self.items for c in item.captions]
        parts = [
            embedding.sentences(pad_captions(captions[start : start + GROUP], self.max_length))
            for start in range(0, len(captions), GROUP)
        ]
        return torch.cat(parts)
