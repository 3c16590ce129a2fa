"""Trains a captioner in phases: cross-entropy first, self-critical steps last, its own phases between.

A step is a function of the seed and its number (``TrainingBatches.at``, one generator a step), so a run that
was killed continues exactly where its last saved state stands.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Generic, NoReturn, TypeAlias

import torch
from torch import Tensor, nn
from tqdm import tqdm

from models.captioner import Captioner
from models.captioners.semantic_embedding import SemanticEmbedding
from models.training_phase import CROSS_ENTROPY, PhaseSpec
from training.batches.forcing_plan import plan_forcing
from training.batches.loading import BatchLoader, find_device
from training.batches.training_batch import CaptionedItem, TrainingBatch, TrainingBatches
from training.optimization.learner import Learner, NetworkT, adapt_to_rewards, build_learner
from training.optimization.losses import CaptionValues, supervised_loss
from training.optimization.processes import ALONE, Processes
from training.optimization.progress import BestScore, NotFinite, PhaseProgress, StepMeans, check_loss
from training.optimization.run_folder import TrainingRun
from training.optimization.self_critical import SelfCritical
from training.optimization.validation import HeldOutScores, Validation, keep_memory
from training.precision import CPU, autocast
from training.recipes.recipe import Recipe, TrainingMoment
from training.runs.stopping import Stopped, StopSignals

REPORT_EVERY = 20
#: What weights are judged by where CIDEr-D of the held-out items cannot be computed.
LIKELIHOOD = "log_likelihood"
#: Losses of one step, each (): "total" is descended, the others are logged.
Losses: TypeAlias = Mapping[str, Tensor]
#: What is part of the metric "sum".
SUMMED = ("bleu4", "meteor", "rouge_l", "cider")


def list_phase_names(network: nn.Module) -> tuple[str, ...]:
    """Lists the phases of a network's training in the order in which a run has them."""
    if isinstance(network, Captioner):
        return (*(spec.name for spec in network.phases), "self_critical")
    return ("embedding",) if isinstance(network, SemanticEmbedding) else ("cross_entropy",)


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
    judge: Callable[[NetworkT], HeldOutScores]
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
    save_best: Callable[[Any, BestScore], None]
    precision: torch.dtype
    #: On the same as pseudo-videos of several shots, where such are trained on.
    shots_validation: Validation[CaptionedItem] | None = None
    #: That train together, each with its part of the batches; the first one logs and saves.
    processes: Processes = ALONE

    def train(self, captioner: Captioner, keep_start: bool = False) -> None:
        """Takes ``recipe.steps`` of cross-entropy; resumes from the run's folder where there is one.

        With ``keep_start`` the weights it starts from are the first to be surpassed, as without any step.
        """
        steps = self.recipe.steps
        self.learn(captioner, captioner.phases[0], steps, keeps_start=keep_start or steps == 0)

    def learn(self, captioner: Captioner, spec: PhaseSpec, steps: int, *, keeps_start: bool = False) -> None:
        """Takes a captioner through one of the phases that it lists.

        Args:
            captioner: whose weights are trained.
            spec: the phase.
            steps: how many it has.
            keeps_start: whether the weights it starts from have to be surpassed, also where the phase does
                not say so.
        """
        values = CaptionValues(self.batches.items, self.processes)
        loss, judge = self.make_supervised_loss(spec, values), partial(self.judge, spec=spec)
        phase: Phase[Captioner] = replace(
            self.make_phase(spec.name, steps, loss, judge),
            metric=spec.metric,
            keeps_start=keeps_start or spec.keeps_start,
            remembered={spec.remembers: values.values} if spec.remembers else {},
        )
        self.go_through(phase, build_learner(self.recipe, captioner, self.precision))

    def refine(self, captioner: Captioner, reward: SelfCritical) -> None:
        """Takes self-critical steps from the captioner's weights; they are kept where validation gains."""
        recipe, steps = self.recipe, self.recipe.self_critical_steps

        def loss(network: Captioner, batch: TrainingBatch, step: int) -> Losses:
            rewarded = recipe.words_rewarded(self.epoch(step))
            generator = self.make_generator(step, 2, find_device(network))
            return reward.loss(network, batch, generator, self.precision, rewarded)

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
        judge: Callable[[NetworkT], HeldOutScores],
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

    def judge(self, captioner: Captioner, spec: PhaseSpec = CROSS_ENTROPY) -> HeldOutScores:
        """Judges a captioner by held-out items, and by pseudo-videos where a phase is judged by those.

        Where CIDEr-D cannot be computed of them, it is how likely their captions are.
        """
        choose = spec.judge_memory or keep_memory
        meteor = self.recipe.needs_meteor and self.processes.is_first
        judged = self.validation.judge(
            captioner, self.precision, choose, meteor=meteor, processes=self.processes
        )
        scores = dict(judged.scores)
        if self.recipe.select == "loss" or "cider" not in scores:
            scores[LIKELIHOOD] = -scores["validation_loss"]
        if meteor:
            scores["sum"] = sum(scores.get(name, 0.0) for name in SUMMED)
        if spec.metric == "shots_cider" and "cider" in scores:
            shots = self.shots_validation
            of_shots = (
                judged
                if shots is None
                else shots.judge(captioner, self.precision, choose, processes=self.processes)
            )
            scores["shots_cider"] = of_shots.scores["cider"]
        return replace(judged, scores=scores)

    def make_supervised_loss(
        self, spec: PhaseSpec, values: CaptionValues | None = None
    ) -> Callable[[Captioner, TrainingBatch, int], Losses]:
        """Makes what computes a phase's loss of a batch.

        spec: the phase. values: what its loss remembers of captions.
        """

        def loss(captioner: Captioner, batch: TrainingBatch, step: int) -> Losses:
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
        """Takes all steps of a phase that the run has not taken yet.

        Raises Stopped where a signal came (the state is saved), NotFinite where a loss or weight is no
        number.
        """
        self.processes.check_videos(min(phase.batches.videos, len(phase.batches.items)))
        progress = self._resume(phase, learner)
        silent = not self.processes.is_first
        with (
            StopSignals(heeded=not silent) as signals,
            tqdm(
                total=phase.steps, initial=progress.step, desc=phase.name, unit="step", disable=silent
            ) as bar,
        ):
            try:
                self._take_steps(phase, learner, progress, signals, bar)
            except Stopped:
                self._save(phase, learner, progress)
                raise
        self.processes.wait()  # for what the first one has saved

    def _take_steps(
        self,
        phase: Phase[NetworkT],
        learner: Learner[NetworkT],
        progress: PhaseProgress,
        signals: StopSignals,
        bar: "tqdm[NoReturn]",
    ) -> None:
        is_start = progress.step == 0 and progress.best == -math.inf and phase.keeps_start
        if is_start or progress.is_due(phase.validate_every, phase.steps):
            self._validate(phase, learner, progress, signals)
        compute = self.processes.wrap(learner.network, phase.loss)
        means, began = StepMeans(), time.monotonic()
        saved, every = began, self.run.log_every or REPORT_EVERY
        for step, parts in self._load_batches(phase, learner, progress.step):
            losses = self._step(phase, learner, compute, parts, step)
            means.add(losses)
            progress.step = step + 1
            bar.update()
            validates = progress.is_due(phase.validate_every, phase.steps)
            if progress.step % every == 0 or progress.step == phase.steps:  # reading a loss waits for the GPU
                self._report(phase, progress, means.take(), time.monotonic() - began, bar)
            if validates:
                check_loss(float(losses["total"]), f"step {progress.step} of {phase.name}")
                self._validate(phase, learner, progress, signals)
            elif time.monotonic() - saved > self.run.save_every:
                self._save(phase, learner, progress)
            if validates or time.monotonic() - saved > self.run.save_every:
                saved = time.monotonic()
            signals.check()
            if validates and self._is_over(progress):
                progress.step = progress.judged = phase.steps
                self._save(phase, learner, progress)
                break

    def _load_batches(
        self, phase: Phase[NetworkT], learner: Learner[NetworkT], first: int
    ) -> Iterator[tuple[int, list[TrainingBatch]]]:
        """Yields the phase's steps from ``first`` on, each with the parts of this process's batch."""
        part, device = self.processes.part, find_device(learner.network)
        videos = min(phase.batches.videos, len(phase.batches.items)) // part.count
        count = min(self.recipe.accumulate, max(1, videos))
        loaders = [
            BatchLoader(replace(phase.batches, part=part.divide(number, count)), device, prepare=self._plan)
            for number in range(count)
        ]
        for parts in zip(*(loader.load(first, phase.steps) for loader in loaders), strict=True):
            yield parts[0][0], [batch for _, batch in parts]

    def _plan(self, batch: TrainingBatch, step: int) -> TrainingBatch:
        """Adds the plan by which the words of the batch's captions are forced, where the loss is theirs."""
        share, generator = self.recipe.teacher_forcing(self.epoch(step)), self.make_generator(step, 4)
        fixed = self.recipe.fixed_shapes
        return replace(batch, plan=plan_forcing(batch.targets, len(batch.ids), share, generator, fixed=fixed))

    def _resume(self, phase: Phase[NetworkT], learner: Learner[NetworkT]) -> PhaseProgress:
        """Returns how far the run is in a phase; one that is over takes no step.

        What an earlier phase was judged by is no measure for one that is judged by something else.
        """
        state = self.run.load()
        if state is None:
            return PhaseProgress()
        order, metric = list_phase_names(learner.network), self._metric_of(phase)
        progress = PhaseProgress.restore(state)
        if order.index(state["phase"]) > order.index(phase.name):
            return replace(progress, step=phase.steps, judged=phase.steps)
        if state["phase"] != phase.name:
            is_alike = state.get("metric", "cider") == metric
            alike = PhaseProgress(best=progress.best, held_out_loss=progress.held_out_loss)
            return alike if is_alike else PhaseProgress()
        learner.restore(state)
        for name, tensor in phase.remembered.items():
            tensor.copy_(state[name])
        return progress

    def _metric_of(self, phase: Phase[NetworkT]) -> str:
        metric = self.recipe.select if phase.metric == "cider" else phase.metric
        if not self.validation.scorer.is_computable and metric in ("cider", "shots_cider", "sum"):
            return LIKELIHOOD
        return LIKELIHOOD if metric == "loss" else metric

    def _step(
        self,
        phase: Phase[NetworkT],
        learner: Learner[NetworkT],
        compute: Callable[[TrainingBatch, int], Losses],
        parts: Sequence[TrainingBatch],
        step: int,
    ) -> Losses:
        """Takes a step; the losses of a batch's parts are weighed by their words."""
        learner.network.train()
        torch.manual_seed(self.processes.shift(self.recipe.seed * 1_000_003 + step))
        losses: dict[str, Tensor] = {}
        for part, share in zip(parts, _share_words(parts), strict=True):
            computed = {name: value * share for name, value in compute(part, step).items()}
            learner.add_gradient(computed["total"])
            losses = {name: losses.get(name, 0) + value.detach() for name, value in computed.items()}
        norm = learner.descend(phase.rate(step), self.recipe.clip)
        return {**losses, "gradient_norm": norm}

    def _report(
        self,
        phase: Phase[NetworkT],
        progress: PhaseProgress,
        means: dict[str, float],
        seconds: float,
        bar: "tqdm[NoReturn]",
    ) -> None:
        check_loss(means.pop("total"), f"step {progress.step} of {phase.name}")
        if not self.processes.is_first:
            return
        rate = phase.rate(progress.step - 1)
        row = {"phase": phase.name, "step": progress.step, "learning_rate": rate, "seconds": seconds}
        self.run.log({**row, **means})
        shown = {"loss": means.get("loss", 0.0), "norm": means["gradient_norm"], "best": progress.best}
        if math.isfinite(progress.held_out_loss):
            shown["its loss"] = progress.held_out_loss
        bar.set_postfix({name: f"{value:.3g}" for name, value in shown.items()}, rate=f"{rate:.2g}")

    def _validate(
        self,
        phase: Phase[NetworkT],
        learner: Learner[NetworkT],
        progress: PhaseProgress,
        signals: StopSignals,
    ) -> None:
        """Scores the averaged weights, keeps them if they are the best, and saves the state.

        All processes judge, each by its part of the items; the first one alone keeps and saves, and it alone
        needs to know how good they are. Raises NotFinite before anything is saved, Stopped.
        """
        averaged = learner.averaged
        if not all(bool(weights.isfinite().all()) for weights in averaged.state_dict().values()):
            raise NotFinite(f"Weights are no longer finite at step {progress.step} of {phase.name}.")
        with signals.interrupting():
            judged = phase.judge(averaged)
        if not self.processes.is_first:
            progress.judged = progress.step
            return
        place, metric = {"phase": phase.name, "step": progress.step}, self._metric_of(phase)
        if judged.captions:
            self.run.write_samples(place, list(zip(self.validation.items, judged.captions, strict=True)))
        score = judged.scores[metric]
        best = BestScore(metric, score, f"{phase.name} step {progress.step}", judged.scores)
        if self.run.keep > 1:
            best = replace(best, file=f"top/{phase.name}-{progress.step:06}.safetensors")
            progress.kept = self.run.keep_best({**progress.kept, best.file: score})
            if best.file in progress.kept:
                self.save_best(averaged, best)
        kept_by = progress.judge(score, judged.scores.get("validation_loss", math.inf))
        self.run.log({**place, **judged.scores, "kept_by": kept_by})
        if kept_by:
            self.save_best(averaged, replace(best, file=BestScore.file))
        self._save(phase, learner, progress)

    def _save(self, phase: Phase[NetworkT], learner: Learner[NetworkT], progress: PhaseProgress) -> None:
        if self.processes.is_first:
            place = {"phase": phase.name, "metric": self._metric_of(phase), **asdict(progress)}
            self.run.save({**place, **learner.state(), **phase.remembered})

    def _is_over(self, progress: PhaseProgress) -> bool:
        """Returns whether a phase ends early; all processes agree with the first one."""
        patience = self.recipe.patience
        return patience is not None and bool(self.processes.gather(progress.stale >= patience)[0])


def _share_words(parts: Sequence[TrainingBatch]) -> Sequence[Tensor | float]:
    """Computes which share of the words of all parts each has."""
    if len(parts) == 1:
        return [1.0]
    words = torch.stack([(part.targets >= 0).sum() for part in parts])
    return list(words / words.sum())
