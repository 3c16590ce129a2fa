"""Training the video-semantic embedding that picks among captions (models/captioners/semantic_embedding.py).

VSE++'s hinge on the hardest negatives alone makes all vectors nearly alike here: many pictures of a batch of
160 could have each other's captions, the hardest negative is then as good as the true one, and the loss sinks
to twice the margin and stays there (0.403 after 500 of our steps, 0.401 after 900). So it has a small part
beside a softmax over all negatives (van den Oord et al. 2018), which still learns from the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from models.captioners.semantic_embedding import SemanticEmbedding
from models.inputs import order_inputs
from models.vocabulary import pad_captions
from training.batches.picture_batches import TrainingBatch, TrainingItem
from training.batches.pseudo_video import batch_of, whole
from training.optimization.run_folder import Learner, learner_of
from training.optimization.trainer import Scores, Trainer

#: Of the hinge on the hardest negatives, beside the softmax.
HINGE_WEIGHT = 0.2
#: What relevances, cosines, are divided by before the softmax.
TEMPERATURE = 0.07
GROUP = 100
RANKS = (1, 5, 10)


def train_embedding(trainer: Trainer, embedding: SemanticEmbedding) -> None:
    """``recipe.steps`` of the ranking losses; resumes from the run's folder where there is one."""
    steps = trainer.recipe.steps

    def loss(learner: Learner, batch: TrainingBatch, _: int) -> dict[str, Tensor]:
        network: Any = learner.captioner
        with trainer.autocast():  # without the GRU, which has no half precision on a CPU
            videos = network.encode_batches(batch.of(network))
        sentences = network.encode_sentences(batch.targets)
        hinge, contrast = network.loss(videos, sentences), contrastive(videos, sentences)
        return {"total": contrast + HINGE_WEIGHT * hinge, "loss": contrast, "auxiliary": hinge}

    def judge(network: Any) -> Scores:
        return Recall(trainer.held_out, trainer.recipe.max_length).of(network)

    phase = trainer.phase("embedding", steps, loss, judge)
    trainer.go_through(phase.judged_by("recall"), learner_of(trainer.recipe, embedding))


def contrastive(videos: Tensor, sentences: Tensor) -> Tensor:
    """Nats to tell a true pair from the batch's others, both ways; videos (B, d), sentences (B·K, d).

    Other captions of the same video are no negatives.
    """
    relevance = videos @ sentences.T / TEMPERATURE  # (B, S)
    owner = torch.arange(len(videos)).repeat_interleave(len(sentences) // len(videos)).to(videos.device)
    true = relevance.gather(0, owner.unsqueeze(0)).squeeze(0)  # (S,)
    others = relevance.masked_fill(F.one_hot(owner, len(videos)).T.bool(), -torch.inf)
    of_video = torch.logaddexp(true, others.logsumexp(1)[owner]) - true
    of_sentence = torch.logaddexp(true, others.logsumexp(0)) - true
    return (of_video + of_sentence).mean() / 2


@dataclass(frozen=True, eq=False)
class Recall:
    """Every caption of the items is looked up among their videos."""

    items: Sequence[TrainingItem]
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
            parts.append(embedding.encode_batches(order_inputs(embedding, batches)))
        return torch.cat(parts)

    def _sentences(self, embedding: Any) -> Tensor:
        captions = [embedding.vocabulary.encode(c) for item in self.items for c in item.captions]
        parts = [
            embedding.encode_sentences(pad_captions(captions[start : start + GROUP], self.max_length))
            for start in range(0, len(captions), GROUP)
        ]
        return torch.cat(parts)
