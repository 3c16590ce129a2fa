"""Trains by sampled captions, each judged by its reward against a baseline.

By default each video is sampled K times, and a sample's advantage is its reward minus the mean reward of the
other K - 1 ("new self-critical", ruotianluo/self-critical.pytorch); the classical baseline is the reward of
the video's greedy caption (Rennie et al. 2017). A caption's end counts as a word of it in every reward: one
that is blind to the end teaches captions that stop after "with a", or never (field reports: the commonest
failure of this method). Cross-entropy is mixed in, with a weight or as MIXER does, where the first words of a
caption are supervised, the rest is rewarded, and every word of it counts alike.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from models.captioner import Captioner
from models.decoding.decode import DecodingOptions, decode, sample
from models.vocabulary import EOS
from training.batches.loading import find_device
from training.batches.training_batch import CaptionedItem, TrainingBatch
from training.optimization.losses import caption_loss
from training.optimization.processes import share_mean
from training.optimization.rewards import Rewards
from training.precision import autocast
from training.recipes.recipe import Recipe


@dataclass(frozen=True, eq=False)
class SelfCritical:
    """Computes the loss of self-critical steps."""

    recipe: Recipe
    rewards: Rewards
    words: Sequence[str]  #: the vocabulary, by the words' ids

    @classmethod
    def for_items(cls, recipe: Recipe, items: Sequence[CaptionedItem], words: Sequence[str]) -> Self:
        """Prepares the recipe's rewards.

        Args:
            recipe: which metrics are paid for, and how samples are drawn.
            items: videos that are trained on, whose captions are the references.
            words: the vocabulary, by the words' ids.

        Raises:
            NoReward: METEOR is paid for and no Java runs.
        """
        return cls(recipe, Rewards(recipe.rewards, {item.id: item.captions for item in items}), words)

    def loss(
        self,
        captioner: Captioner,
        batch: TrainingBatch,
        generator: torch.Generator,
        precision: torch.dtype,
        rewarded: int | None = None,
    ) -> dict[str, Tensor]:
        """Computes policy gradient and cross-entropy, in one encoding of the videos.

        Args:
            captioner: in training mode.
            batch: B videos with K captions each.
            generator: draws the samples.
            precision: what the networks compute in.
            rewarded: with MIXER, how many last words of its first true caption each sample of a video writes
                itself; then cross-entropy is that of the words before, and each word counts alike. Else both
                losses are weighed.

        Returns:
            "total", which is descended, and what is logged, each ().
        """
        samples = self.recipe.self_critical_samples
        prefix, targets, supervised_words = self._divide_losses(batch.targets, len(batch.ids), rewarded)
        greedy = (
            self._reward_greedy(captioner, batch, precision) if self.recipe.baseline == "greedy" else None
        )
        with autocast(precision, find_device(captioner)):
            memory = captioner.encode_batches(batch.inputs_of(captioner))
            drawn = sample(
                captioner,
                memory,
                samples,
                self.recipe.max_length,
                generator,
                prefix,
                self.recipe.self_critical_temperature,
            )
            likelihood = caption_loss(captioner, memory, targets, smoothing=self.recipe.smoothing)
        reward = self._reward_samples(batch.ids, drawn.tokens, samples).to(drawn.logprobs.device)
        grouped = reward.view(-1, samples)
        advantage = subtract_others_mean(grouped) if greedy is None else grouped - greedy.unsqueeze(1)
        words = drawn.mask.sum()
        policy = -(advantage.view(-1, 1) * drawn.logprobs * drawn.mask).sum() / words.clamp(min=1)
        supervised = likelihood.cross_entropy + self.recipe.auxiliary_weight * likelihood.auxiliary
        counts = (words, supervised_words)
        total = (
            self._weigh(policy, supervised, *counts)
            if rewarded is None
            else self._mean_over_words(policy, supervised, *counts)
        )
        parts = {"loss": likelihood.cross_entropy, "auxiliary": likelihood.auxiliary}
        return {"total": total, **parts, "reward": reward.mean()}

    def _weigh(self, policy: Tensor, supervised: Tensor, words: Tensor, supervised_words: Tensor) -> Tensor:
        """Adds both means by the recipe's weight."""
        weight = self.recipe.self_critical_weight
        return weight * share_mean(policy, words) + (1 - weight) * share_mean(supervised, supervised_words)

    def _mean_over_words(
        self, policy: Tensor, supervised: Tensor, words: Tensor, supervised_words: Tensor
    ) -> Tensor:
        """Joins both means to one over all words of the captions; a video's samples count as one (MIXER)."""
        rewarded_words = words / self.recipe.self_critical_samples
        both = rewarded_words + supervised_words
        return share_mean((policy * rewarded_words + supervised * supervised_words) / both, both)

    def _divide_losses(
        self, targets: Tensor, videos: int, rewarded: int | None
    ) -> tuple[Tensor | None, Tensor, Tensor]:
        """Returns what samples begin with, what is supervised, and how many words () that are."""
        if rewarded is None:
            return None, targets, (targets >= 0).sum()
        counts = (targets >= 0).sum(1, keepdim=True) - rewarded
        most = max(0, int(counts.max()))
        places = torch.arange(most, device=targets.device)
        first_words = targets[:, :most].masked_fill(places >= counts, -1)
        prefix = first_words.view(videos, -1, most)[:, 0] if most else targets[:videos, :0]
        prefix = prefix.repeat_interleave(self.recipe.self_critical_samples, 0)
        return prefix, first_words if most else targets, (first_words >= 0).sum()

    @torch.no_grad()
    def _reward_greedy(self, captioner: Captioner, batch: TrainingBatch, precision: torch.dtype) -> Tensor:
        """Returns (B,) rewards of what the captioner writes when it is used, without dropout."""
        options = DecodingOptions(  # as free to name a thing twice as the samples are
            method="greedy", max_length=self.recipe.max_length, name_once=False, attention=False
        )
        captioner.eval()
        with autocast(precision, find_device(captioner)):
            written = decode(captioner, captioner.encode_batches(batch.inputs_of(captioner)), options)
        captioner.train()
        best = [hypotheses[0] for hypotheses in written]
        captions = [[self.words[i] for i in each.tokens] for each in best]
        scores = self.rewards.score(batch.ids, captions, [each.finished for each in best])
        return torch.from_numpy(scores).float().to(batch.targets.device)

    def _reward_samples(self, ids: Sequence[str], tokens: Tensor, samples: int) -> Tensor:
        rows = tokens.tolist()
        finished = [EOS in row for row in rows]
        captions = [
            [self.words[i] for i in row[: row.index(EOS) if EOS in row else len(row)]] for row in rows
        ]
        repeated = [name for name in ids for _ in range(samples)]
        return torch.from_numpy(self.rewards.score(repeated, captions, finished)).float()


def subtract_others_mean(reward: Tensor) -> Tensor:
    """Returns rewards (B, K) minus the mean of the other K - 1 of the same video."""
    others = (reward.sum(1, keepdim=True) - reward) / (reward.shape[1] - 1)
    return reward - others
