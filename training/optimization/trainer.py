"""Trains a captioner in phases: cross-entropy first, self-critical steps last, its own phases between.

A step is a function of the seed and its number (``TrainingBatches.at``, one generator a step), so a run that
was killed continues exactly where its last saved state stands.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Generic, TypeAlias

import torch
from torch import Tensor, nn
from tqdm import tqdm

from extractors.errors import ReelwordError
from models.captioner import AnyCaptioner, Captioner
from models.captioners.semantic_embedding import SemanticEmbedding
from models.training_phase import CROSS_ENTROPY, PhaseSpec
from training.batches.loading import BatchLoader, find_device
from training.batches.training_batch import CaptionedItem, TrainingBatch, TrainingBatches
from training.optimization.learner import (
    Learner,
    NetworkT,
    TrainedNetwork,
    adapt_to_rewards,
    build_learner,
)
from training.optimization.losses import CaptionValues, supervised_loss
from training.optimization.processes import ALONE, Processes
from training.optimization.run_folder import TrainingRun
from training.optimization.self_critical import SelfCritical
from training.optimization.validation import Validation, keep_memory
from training.precision import CPU, autocast
from training.recipes.recipe import Recipe, TrainingMoment

REPORT_EVERY = 20
#: What weights are judged by where CIDEr-D of the held-out items cannot be computed.
LIKELIHOOD = "log_likelihood"
#: Losses of one step, each (): "total" is descended, the others are logged.
Losses: TypeAlias = Mapping[str, Tensor]
#: Name → value of what checkpoints are judged by.
Scores: TypeAlias = Mapping[str, float]


def list_phase_names(network: TrainedNetwork) -> tuple[str, ...]:
    """Lists the phases of a network's training in the order in which a run has them."""
    if isinstance(network, Captioner):
        return (*(spec.name for spec in network.phases), "self_critical")
    return ("embedding",) if isinstance(network, SemanticEmbedding) else ("cross_entropy",)


@dataclass(frozen=True)
class BestScore:
    """The score by which weights were kept."""

    metric: str  #: its name
    value: float
    where: str  #: the phase and step of the run


class NotFinite(ReelwordError, ArithmeticError, code="training_not_finite"):
    """A loss or the weights became infinite or no number: no step after it can learn."""

    hint = (
        "Train with a lower learning rate, or look for numbers that are none among the features; the run "
        "continues from its last validation."
    )


@dataclass(frozen=True, eq=False)
class Phase(Generic[NetworkT]):
    """One stretch of training."""

    name: str
    steps: int
    validate_every: int
    batches: TrainingBatches[CaptionedItem]
    #: From the network, a batch and the step's number to losses.
    loss: Callable[[NetworkT, TrainingBatch, int], Losses]
    rate: Callable[[int], float]  #: from a step to its learning rate
    #: Scores of the averaged weights, of which the one called ``metric``, or LIKELIHOOD in its place, says
    #: whether they are kept.
    judge: Callable[[NetworkT], Scores]
    metric: str = "cider"
    keeps_start: bool = False  #: the weights it starts from have to be surpassed
    #: Tensors that the loss changes in place and that belong to the run's state.
    remembered: Mapping[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Trainer:
    """A recipe, its data, and the folder that remembers how far a run got."""

    recipe: Recipe
    batches: TrainingBatches[CaptionedItem]
    validation: Validation[CaptionedItem]  #: on held-out items
    run: TrainingRun
    #: Keeps the weights of a network that are the best so far.
    save_best: Callable[[TrainedNetwork, BestScore], None]
    precision: torch.dtype
    #: On the same as pseudo-videos of several shots, where such are trained on.
    shots_validation: Validation[CaptionedItem] | None = None
    #: That train together, each with its part of the batches; the first one validates, logs and saves.
    processes: Processes = ALONE

    def train(self, captioner: AnyCaptioner, keep_start: bool = False) -> None:
        """Takes ``recipe.steps`` of cross-entropy; resumes from the run's folder where there is one.

        With ``keep_start`` the weights it starts from are the first to be surpassed, as without any step.
        """
        steps = self.recipe.steps
        spec = captioner.phases[0]
        loss = self.make_supervised_loss(spec)
        phase: Phase[AnyCaptioner] = self.make_phase(spec.name, steps, loss, self.judge)
        phase = replace(phase, keeps_start=keep_start or steps == 0)
        self.go_through(phase, build_learner(self.recipe, captioner, self.precision))

    def refine(self, captioner: AnyCaptioner, reward: SelfCritical) -> None:
        """Takes self-critical steps from the captioner's weights; they are kept where validation gains."""
        recipe, steps = self.recipe, self.recipe.self_critical_steps

        def loss(network: AnyCaptioner, batch: TrainingBatch, step: int) -> Losses:
            forced_words = recipe.words_given(self.epoch(step))
            generator = self.make_generator(step, 2, find_device(network))
            return reward.loss(network, batch, generator, self.precision, forced_words)

        def rate(step: int) -> float:
            moment = TrainingMoment(step / steps, self.epoch(step))
            return recipe.self_critical_rate * recipe.schedule.share(moment)

        batches = self.batches.with_captions(recipe.self_critical_captions)
        every = recipe.self_critical_every
        phase = Phase("self_critical", steps, every, batches, loss, rate, self.judge, keeps_start=True)
        self.go_through(phase, build_learner(adapt_to_rewards(recipe), captioner, self.precision))

    def make_phase(
        self,
        name: str,
        steps: int,
        loss: Callable[[NetworkT, TrainingBatch, int], Losses],
        judge: Callable[[NetworkT], Scores],
    ) -> Phase[NetworkT]:
        """Makes a phase on the trainer's batches, at the recipe's rate.

        Args:
            name: a captioner's phase, or one that all have.
            steps: how many the phase has.
            loss: from the network, a batch and the step's number to losses.
            judge: from the averaged network to scores.
        """

        def rate(step: int) -> float:
            return self.recipe.rate(step, steps, self.epoch(step))

        return Phase(name, steps, self.recipe.validate_every, self.batches, loss, rate, judge)

    def epoch(self, step: int) -> float:
        """Returns how many epochs ``step`` steps are: as long as the recipe says, or all videos once."""
        return step / (self.recipe.epoch_steps or self.batches.steps_per_epoch)

    def judge(self, captioner: AnyCaptioner, spec: PhaseSpec = CROSS_ENTROPY) -> Scores:
        """Returns CIDEr-D of the held-out items, and of pseudo-videos where a phase is judged by those.

        Where it cannot be computed of these items, it is how likely their captions are.
        """
        choose = spec.judge_memory or keep_memory
        if not self.validation.scorer.is_computable:
            return {LIKELIHOOD: self.validation.log_likelihood(captioner, self.precision, choose)}
        scores = {"cider": self.validation.cider(captioner, self.precision, choose)}
        if spec.metric == "cider":
            return scores
        if self.shots_validation is None:
            return {**scores, "shots_cider": scores["cider"]}
        return {**scores, "shots_cider": self.shots_validation.cider(captioner, self.precision, choose)}

    def make_supervised_loss(
        self, spec: PhaseSpec, values: CaptionValues | None = None
    ) -> Callable[[AnyCaptioner, TrainingBatch, int], Losses]:
        """Makes what computes a phase's loss of a batch.

        spec: the phase. values: what its loss remembers of captions.
        """

        def loss(captioner: AnyCaptioner, batch: TrainingBatch, step: int) -> Losses:
            device = find_device(captioner)
            with self.autocast(captioner):
                memory = captioner.encode_batches(batch.inputs_of(captioner))
                memory = spec.choose(memory, self.make_generator(step, 3, device))
                forcing = self.recipe.teacher_forcing(self.epoch(step))
                generator = self.make_generator(step, 1, device)
                return supervised_loss(
                    captioner, memory, batch, self.recipe, forcing, generator, spec, values
                )

        return loss

    def autocast(self, network: nn.Module) -> torch.autocast:
        """Returns a context that computes on the network's device, in half precision where it has it."""
        return autocast(self.precision, find_device(network))

    def make_generator(self, step: int, purpose: int, device: torch.device = CPU) -> torch.Generator:
        """Makes the generator of one step in this process.

        Args:
            step: the step's number.
            purpose: 1 to 15, so that what is drawn for one thing does not depend on another.
            device: on which it draws.
        """
        seed = self.processes.shift(self.recipe.seed * 16 + purpose)
        return torch.Generator(device).manual_seed((seed * 10_000_019 + step) % 2**63)

    def go_through(self, phase: Phase[NetworkT], learner: Learner[NetworkT]) -> None:
        """Takes all steps of a phase that the run has not taken yet."""
        self.processes.check_videos(min(phase.batches.videos, len(phase.batches.items)))
        first, best = self._resume(phase, learner)
        if first == 0 and best == -math.inf and phase.keeps_start:
            best = self._checkpoint(phase, 0, learner, best)
        clock = time.monotonic()
        compute = self.processes.wrap(learner.network, phase.loss)
        silent = not self.processes.is_first
        with tqdm(total=phase.steps, initial=first, desc=phase.name, unit="step", disable=silent) as bar:
            for step, batch in self._load_batches(phase, learner, first):
                losses = self._step(phase, learner, compute, batch, step)
                bar.update()
                reports = (step + 1) % REPORT_EVERY == 0
                validates = (step + 1) % phase.validate_every == 0 or step + 1 == phase.steps
                if reports or validates:  # reading a loss waits for the GPU, so not at every step
                    _check_loss(phase.name, step, losses["total"])
                if reports:
                    self._report(phase, step, losses, time.monotonic() - clock)
                if validates:
                    best = self._checkpoint(phase, step + 1, learner, best)
                    bar.set_postfix(best=f"{best:.2f}")
        self.processes.wait()  # for what the first one has saved

    def _load_batches(
        self, phase: Phase[NetworkT], learner: Learner[NetworkT], first: int
    ) -> Iterator[tuple[int, TrainingBatch]]:
        """Yields the phase's steps from ``first`` on, each with this process's part of its batch."""
        batches = replace(phase.batches, part=self.processes.part)
        return BatchLoader(batches, find_device(learner.network)).load(first, phase.steps)

    def _resume(self, phase: Phase[NetworkT], learner: Learner[NetworkT]) -> tuple[int, float]:
        """Returns the first step to take and the best score so far; a phase that is over takes none.

        What an earlier phase was judged by is no measure for one that is judged by something else.
        """
        state = self.run.load()
        if state is None:
            return 0, -math.inf
        order, metric = list_phase_names(learner.network), self._metric_of(phase)
        if order.index(state["phase"]) > order.index(phase.name):
            return phase.steps, float(state["best"])
        if state["phase"] != phase.name:
            return 0, float(state["best"]) if state.get("metric", "cider") == metric else -math.inf
        learner.restore(state)
        for name, tensor in phase.remembered.items():
            tensor.copy_(state[name])
        return int(state["step"]), float(state["best"])

    def _metric_of(self, phase: Phase[NetworkT]) -> str:
        is_lost = phase.metric in ("cider", "shots_cider") and not self.validation.scorer.is_computable
        return LIKELIHOOD if is_lost else phase.metric

    def _step(
        self,
        phase: Phase[NetworkT],
        learner: Learner[NetworkT],
        compute: Callable[[TrainingBatch, int], Losses],
        batch: TrainingBatch,
        step: int,
    ) -> Losses:
        learner.network.train()
        torch.manual_seed(self.processes.shift(self.recipe.seed * 1_000_003 + step))
        losses = compute(batch, step)
        learner.update(losses["total"], phase.rate(step), self.recipe.clip)
        return losses

    def _report(self, phase: Phase[NetworkT], step: int, losses: Losses, seconds: float) -> None:
        if not self.processes.is_first:
            return
        values = {name: float(value.detach()) for name, value in losses.items() if name != "total"}
        row = {"phase": phase.name, "step": step + 1, "learning_rate": phase.rate(step), "seconds": seconds}
        self.run.log(row | values)

    def _checkpoint(
        self, phase: Phase[NetworkT], step: int, learner: Learner[NetworkT], best: float
    ) -> float:
        """Scores the averaged weights, keeps them if they are the best, and saves the state.

        Only the first process does, and only it needs to know how good they are. Raises NotFinite before
        anything is saved.
        """
        if not self.processes.is_first:
            return best
        averaged = learner.averaged
        if not all(bool(weights.isfinite().all()) for weights in averaged.state_dict().values()):
            raise NotFinite(f"Weights are no longer finite at step {step} of {phase.name}.")
        scores = phase.judge(averaged)
        metric = self._metric_of(phase)
        score = scores[metric]
        self.run.log({"phase": phase.name, "step": step, **scores})
        if score >= best:  # of equals the last: what is trained may not show in what is judged
            self.save_best(averaged, BestScore(metric, score, f"{phase.name} step {step}"))
        best = max(score, best)
        place = {"phase": phase.name, "step": step, "best": best, "metric": metric}
        self.run.save({**place, **learner.state(), **phase.remembered})
        return best


def _check_loss(phase: str, step: int, loss: Tensor) -> None:
    """Checks the loss of a step. Raises NotFinite."""
    if not loss.isfinite():
        raise NotFinite(f"The loss of {phase} is {float(loss.detach())} at step {step + 1}.")
