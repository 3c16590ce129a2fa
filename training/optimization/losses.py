"""Computes losses of captioners: of words, of attention, against teachers' probabilities."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from models.captioner import Captioner
from models.memory import Memory
from models.training_phase import NextWord, PhaseBatch, PhaseSpec
from training.batches.forcing_plan import ForcingPlan, plan_forcing
from training.batches.loading import move_to
from training.batches.training_batch import CaptionedItem, TeacherTargets, TrainingBatch
from training.optimization.forced_steps import draw_words, force_words
from training.optimization.processes import ALONE, Processes, share_mean
from training.recipes.recipe import Recipe


class CaptionValues:
    """Keeps the value that each caption of each training video had when it was last trained on.

    A few of a video's captions are drawn at a time, and how hard one is to write differs more between
    captions than between epochs: so a value is compared with the same caption's. ``values`` (captions,) are
    NaN for one that was not drawn yet; a run's state holds them. An epoch shows as many captions as there
    are, so that what is remembered is the last epoch's where the draws were even, and an older value, or
    none, elsewhere. All processes know all values: the next time another may have the video.
    """

    def __init__(self, items: Sequence[CaptionedItem], processes: Processes = ALONE) -> None:
        self._processes = processes
        firsts = accumulate((len(item.captions) for item in items), initial=0)
        self._first = {item.id: first for item, first in zip(items, firsts, strict=False)}
        self.values = torch.full((sum(len(item.captions) for item in items),), torch.nan)

    def get(self, batch: TrainingBatch) -> Tensor:
        """Returns (R,) values of the batch's captions, on the CPU."""
        return self.values[self._places(batch)]

    def remember(self, batch: TrainingBatch, values: Tensor) -> None:
        """Keeps values (R,) of the batch's captions."""
        for places, kept in self._processes.gather((self._places(batch), values.detach().float().cpu())):
            self.values[places] = kept

    def _places(self, batch: TrainingBatch) -> Tensor:
        each = len(batch.places) // len(batch.ids)
        owners = [name for name in batch.ids for _ in range(each)]
        return torch.tensor([self._first[name] + i for name, i in zip(owners, batch.places, strict=True)])


@dataclass(frozen=True, eq=False)
class CaptionLoss:
    """Losses of a batch, each () and a mean over words."""

    cross_entropy: Tensor  #: nats
    auxiliary: Tensor  #: what the captioner adds
    shot: Tensor  #: nats, -log of the temporal attention on the captioned shot


def caption_loss(
    captioner: Captioner,
    memory: Memory,
    targets: Tensor,
    *,
    plan: ForcingPlan | None = None,
    smoothing: float = 0.0,
    generator: torch.Generator | None = None,
    true_steps: Tensor | None = None,
    soft: TeacherTargets | None = None,
    soft_weight: float = 0.0,
) -> CaptionLoss:
    """Computes the losses of captions, word by word.

    Args:
        captioner: whose ``step`` is taken for every word.
        memory: B encoded videos.
        targets: (R, L) from ``pad_captions``, R = B × K, the K captions of a video side by side.
        plan: of these targets, on the captioner's device; by default one that feeds true words alone, for
            which a GPU is waited for.
        smoothing: the share of the target that all words have alike.
        generator: draws the words of its own that the plan feeds.
        true_steps: bool (B, T), the steps of each video that its captions are of.
        soft: a teacher's words in every place.
        soft_weight: the share of the cross-entropy that these take.
    """
    plan = plan or move_to(plan_forcing(targets.cpu(), memory.size), targets.device)
    forced = force_words(captioner, memory, targets, plan, generator)
    loss = _smooth(forced.log_probs, forced.take(targets.clamp(min=0)), smoothing)
    if soft is not None:
        counted_soft = TeacherTargets(
            forced.take(soft.words).unsqueeze(1), forced.take(soft.shares).unsqueeze(1)
        )
        loss = (1 - soft_weight) * loss + soft_weight * counted_soft.loss(forced.log_probs, 0)
    auxiliary = shot = torch.zeros((), device=targets.device)
    captions = targets.shape[0] // memory.size
    for attention, counted, of, weights in forced.looks():
        if attention.loss is not None:
            auxiliary = auxiliary + (attention.loss[counted] * weights).sum()
        if true_steps is not None:
            missed = _measure_missed_attention(attention.temporal[counted], true_steps[of // captions])
            shot = shot + (missed * weights).sum()
    words = forced.weights.sum()
    return CaptionLoss((loss * forced.weights).sum() / words, auxiliary / words, shot / words)


def _smooth(log_probs: Tensor, target: Tensor, smoothing: float) -> Tensor:
    loss = -log_probs.gather(1, target.unsqueeze(1)).squeeze(1)
    if smoothing:
        loss = (1 - smoothing) * loss - smoothing * log_probs.mean(1)
    return loss


def _measure_missed_attention(temporal: Tensor, true_steps: Tensor) -> Tensor:
    """Computes (N,) -log of the attention (N, T) that the true steps (N, T) of each row's video get."""
    return -(temporal.float() * true_steps).sum(1).clamp(min=1e-6).log()


def make_scheduled_sampling(ratio: float, generator: torch.Generator) -> NextWord:
    """Makes a function from log-probabilities (R, V) and true words (R,) to the words that are fed.

    ratio: the share of true words among them.
    """

    def choose(log_probs: Tensor, target: Tensor) -> Tensor:
        if ratio >= 1:
            return target
        is_drawn = torch.rand(target.shape, generator=generator, device=target.device) >= ratio
        return torch.where(is_drawn, draw_words(log_probs.detach(), generator), target)

    return choose


def supervised_loss(
    captioner: Captioner,
    memory: Memory,
    batch: TrainingBatch,
    recipe: Recipe,
    forcing: float,
    generator: torch.Generator,
    spec: PhaseSpec | None = None,
    values: CaptionValues | None = None,
) -> dict[str, Tensor]:
    """Computes the supervised loss of a batch; a phase's own loss takes the place of cross-entropy.

    Args:
        captioner: in training mode.
        memory: the batch's B encoded videos.
        batch: has the captions, and where words of its own are fed, the plan that says which.
        recipe: weights of the losses.
        forcing: the share of true words that a phase's own loss feeds.
        generator: draws the others.
        spec: the phase, by default the captioner's first.
        values: what the phase's own loss remembers of captions, and is changed by it.

    Returns:
        "total", which is descended, "loss", nats a word, and others to be logged, each ().
    """
    words = (batch.targets >= 0).sum()
    spec = spec or captioner.phases[0]
    if spec.loss is not None:
        remembered = memory.times.new_full((len(batch.targets),), torch.nan)
        if values is not None and spec.remembers:
            remembered = values.get(batch).to(batch.targets.device)
        next_word = make_scheduled_sampling(forcing, generator)
        phase_loss = spec.loss(captioner, PhaseBatch(memory, batch.targets, next_word, remembered))
        if values is not None and phase_loss.remembered is not None:
            values.remember(batch, phase_loss.remembered)
        return {"total": share_mean(phase_loss.total, words), **phase_loss.parts}
    loss = caption_loss(
        captioner,
        memory,
        batch.targets,
        plan=batch.plan,
        smoothing=recipe.smoothing,
        generator=generator,
        true_steps=batch.true_steps,
        soft=batch.soft,
        soft_weight=recipe.soft_weight,
    )
    total = loss.cross_entropy + recipe.auxiliary_weight * loss.auxiliary + recipe.shot_weight * loss.shot
    return {
        "total": share_mean(total, words),
        "loss": loss.cross_entropy,
        "auxiliary": loss.auxiliary,
        "shot": loss.shot,
    }
