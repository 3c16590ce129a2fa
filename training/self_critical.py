"""Self-critical training with the other samples' mean as baseline.

Each video is sampled K times; a sample's advantage is its reward minus the mean reward of the other
K - 1 ("new self-critical", ruotianluo/self-critical.pytorch). The reward is CIDEr-D that counts the end
of a caption as a word, against the document frequencies of the training captions: a reward blind to the
end teaches captions that stop after "with a" (field reports: the commonest failure of this method).
The gradient is mixed with cross-entropy, as MIXER does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from models.decoding import sample
from models.vocabulary import EOS
from training.cider import CiderD
from training.dataset import Captioned, TrainingBatch
from training.losses import caption_loss
from training.recipes import Recipe


@dataclass(frozen=True, eq=False)
class SelfCritical:
    """The reward and its weights."""

    recipe: Recipe
    scorer: CiderD
    words: Sequence[str]

    @classmethod
    def of(cls, recipe: Recipe, items: Sequence[Captioned], words: Sequence[str]) -> SelfCritical:
        return cls(recipe, CiderD({item.id: item.captions for item in items}, count_end=True), words)

    def loss(
        self, captioner: Any, batch: TrainingBatch, generator: torch.Generator, precision: torch.dtype
    ) -> dict[str, Tensor]:
        """weight · policy gradient + (1 - weight) · cross-entropy, in one encoding of the videos."""
        weight, samples = self.recipe.self_critical_weight, self.recipe.self_critical_samples
        with torch.autocast("cpu", precision, enabled=precision != torch.float32):
            memory = captioner.encode_batches(batch.of(captioner))
            drawn = sample(
                captioner,
                memory,
                rows_per_video=samples,
                max_length=self.recipe.max_length,
                generator=generator,
            )
            likelihood = caption_loss(captioner, memory, batch.targets, smoothing=self.recipe.smoothing)
        reward = self._reward(batch.ids, drawn.tokens, samples)
        advantage = leave_one_out(reward.view(-1, samples)).view(-1, 1)
        policy = -(advantage * drawn.logprobs * drawn.mask).sum() / drawn.mask.sum()
        supervised = likelihood.cross_entropy + self.recipe.ranking_weight * likelihood.auxiliary
        total = weight * policy + (1 - weight) * supervised
        return {
            "total": total,
            "loss": likelihood.cross_entropy,
            "auxiliary": likelihood.auxiliary,
            "reward": reward.mean(),
        }

    def _reward(self, ids: Sequence[str], tokens: Tensor, samples: int) -> Tensor:
        rows = tokens.tolist()
        finished = [EOS in row for row in rows]
        captions = [
            [self.words[i] for i in row[: row.index(EOS) if EOS in row else len(row)]] for row in rows
        ]
        repeated = [name for name in ids for _ in range(samples)]
        return torch.from_numpy(self.scorer.score(repeated, captions, finished)).float()


def leave_one_out(reward: Tensor) -> Tensor:
    """(B, K) rewards minus the mean of the other K - 1 of the same video."""
    others = (reward.sum(1, keepdim=True) - reward) / (reward.shape[1] - 1)
    return reward - others
