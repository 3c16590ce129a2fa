"""Trains the video-semantic embedding that picks among captions (models/captioners/semantic_embedding.py).

VSE++'s hinge on the hardest negatives alone makes all vectors nearly alike here: many pictures of a batch of
160 could have each other's captions, the hardest negative is then as good as the true one, and the loss sinks
to twice the margin and stays there (0.403 after 500 of our steps, 0.401 after 900). So it has a small part
beside a softmax over all negatives (van den Oord et al. 2018), which still learns from the others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from models.captioners.semantic_embedding import SemanticEmbedding
from models.inputs import order_inputs
from models.vocabulary import pad_captions
from training.batches.loading import find_device, move_to
from training.batches.training_batch import CaptionedItem, TrainingBatch
from training.optimization.learner import build_learner
from training.optimization.processes import NotShared
from training.optimization.trainer import Losses, Trainer
from training.optimization.validation import HeldOutScores, Validation

#: Of the hinge on the hardest negatives, beside the softmax.
HINGE_WEIGHT = 0.2
#: What relevances, cosines, are divided by before the softmax.
TEMPERATURE = 0.07
GROUP = 100
RANKS = (1, 5, 10)


def train_embedding(trainer: Trainer, embedding: SemanticEmbedding) -> None:
    """Takes ``recipe.steps`` of the ranking losses; resumes from the run's folder where there is one.

    Args:
        trainer: on batches of pseudo-videos, or of videos; weights are kept by the recall of its held-out
            items.
        embedding: with the weights to begin with.

    Raises:
        NotShared: several processes train it, and its losses compare all videos of a batch.
    """
    if trainer.processes.count > 1:
        raise NotShared(
            "The losses of the semantic embedding compare all videos of a batch, so one process trains it."
        )
    recall = Recall(trainer.validation, trainer.recipe.max_length)

    def loss(network: SemanticEmbedding, batch: TrainingBatch, _: int) -> Losses:
        with trainer.autocast(network):  # without the GRU, which has no half precision on a CPU
            videos = network.encode_batches(batch.inputs_of(network))
        sentences = network.encode_sentences(batch.targets)
        hinge = hinge_loss(videos, sentences, network.config.margin)
        contrast = contrastive_loss(videos, sentences)
        return {"total": contrast + HINGE_WEIGHT * hinge, "loss": contrast, "auxiliary": hinge}

    def judge(network: SemanticEmbedding) -> HeldOutScores:
        return HeldOutScores(recall.measure(network))

    phase = trainer.make_phase("embedding", trainer.recipe.steps, loss, judge)
    learner = build_learner(trainer.recipe, embedding, trainer.precision)
    trainer.go_through(replace(phase, metric="recall"), learner)


def hinge_loss(videos: Tensor, sentences: Tensor, margin: float) -> Tensor:
    """Computes the hinge on the hardest negatives.

    For each true pair these are the most relevant other sentence of the video and the most relevant other
    video of the sentence; other captions of the same video are no negatives.

    Args:
        videos: (B, joint).
        sentences: (B·K, joint), those of a video side by side.
        margin: By which a true pair has to be more relevant.
    """
    relevance = videos @ sentences.T  # (B, S)
    owner = torch.arange(len(videos), device=videos.device).repeat_interleave(len(sentences) // len(videos))
    is_owner = F.one_hot(owner, len(videos)).T.bool()
    true = relevance.gather(0, owner.unsqueeze(0)).squeeze(0)  # (S,)
    others = relevance.masked_fill(is_owner, -torch.inf)
    by_sentence = (margin - true + others.amax(1)[owner]).relu()
    by_video = (margin - true + others.amax(0)).relu()
    return (by_sentence + by_video).mean()


def contrastive_loss(videos: Tensor, sentences: Tensor) -> Tensor:
    """Computes nats to tell a true pair from the batch's others, both ways.

    videos: (B, d). sentences: (B·K, d), those of a video side by side; they are no negatives of each other.
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
    """Looks every caption of held-out items up among their videos. max_length: words of a caption."""

    held_out: Validation[CaptionedItem]
    max_length: int

    def measure(self, embedding: SemanticEmbedding) -> dict[str, float]:
        """Returns per cent of captions whose video is the most relevant, or among 5, or 10, and their mean.

        A video that is as relevant as the true one stands before it.
        """
        embedding.eval()
        with torch.inference_mode():
            relevance = (self._embed_sentences(embedding) @ self._embed_videos(embedding).T).cpu()
        owner = torch.tensor([i for i, item in enumerate(self.held_out.items) for _ in item.captions])
        true = relevance.gather(1, owner.unsqueeze(1))
        better = (relevance >= true).sum(1) - 1
        recalls = {f"recall_{rank}": 100 * float((better < rank).float().mean()) for rank in RANKS}
        return {"recall": sum(recalls.values()) / len(recalls), **recalls}

    def _embed_videos(self, embedding: SemanticEmbedding) -> Tensor:
        parts = []
        for start in range(0, len(self.held_out.items), self.held_out.group):
            batches = move_to(self.held_out.load_group(start), find_device(embedding))
            parts.append(embedding.encode_batches(order_inputs(embedding.inputs, batches)))
        return torch.cat(parts)

    def _embed_sentences(self, embedding: SemanticEmbedding) -> Tensor:
        captions = [embedding.vocabulary.encode(c) for item in self.held_out.items for c in item.captions]
        padded = (
            pad_captions(captions[start : start + GROUP], self.max_length)
            for start in range(0, len(captions), GROUP)
        )
        device = find_device(embedding)
        return torch.cat([embedding.encode_sentences(move_to(each, device)) for each in padded])
