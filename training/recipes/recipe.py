"""Defines a recipe: the numbers by which a captioner is trained, with its schedule of learning rates."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

from pydantic import BaseModel, Field

from models.decoding.options import DecodingOptions


def compute_forcing_ratio(epoch: float, eta: float = 24.0) -> float:
    """Computes η/(η + exp(p/η)), p = epoch: the share of true words that are fed (STaTS, section 4.1)."""
    return eta / (eta + math.exp(epoch / eta))


@dataclass(frozen=True)
class TrainingMoment:
    """A moment of a phase."""

    done: float  #: the share of its steps that are taken
    epoch: float  #: how many epochs those are


class Cosine(BaseModel, frozen=True):
    """Half a cosine over the phase, down to a hundredth."""

    kind: Literal["cosine"] = "cosine"

    def share(self, at: TrainingMoment) -> float:
        """Returns the share of the learning rate at a moment."""
        return max(0.5 * (1 + math.cos(math.pi * at.done)), 0.01)


class Decay(BaseModel, frozen=True):
    """Times ``factor`` after every ``epochs``; with a factor of 1 it never moves."""

    kind: Literal["decay"] = "decay"
    factor: float = 1.0
    epochs: float = 1.0

    def share(self, at: TrainingMoment) -> float:
        """Returns the share of the learning rate at a moment."""
        return float(self.factor ** (at.epoch // self.epochs))


class HoldAndDrop(BaseModel, frozen=True):
    """Rises from ``first`` in a line to one over ``warm`` epochs, holds, and is ``last`` from ``drop`` on."""

    kind: Literal["hold_and_drop"] = "hold_and_drop"
    first: float
    warm: float
    drop: float
    last: float

    def share(self, at: TrainingMoment) -> float:
        """Returns the share of the learning rate at a moment."""
        if at.epoch >= self.drop:
            return self.last
        return self.first + (1 - self.first) * min(1.0, at.epoch / self.warm)


Schedule = Cosine | Decay | HoldAndDrop
CONSTANT = Decay()

#: Phase that every captioner has → the field of a recipe that says how long it is.
STEPS_OF = {"cross_entropy": "steps", "self_critical": "self_critical_steps"}


class RewardWeights(BaseModel, frozen=True):
    """The weight of each metric in a reward; CIDEr-D is 0 to 10, the others 0 to 1."""

    cider: float = 1.0
    bleu: float = 0.0
    meteor: float = 0.0
    rouge_l: float = 0.0


#: How the families call them; GPT-2 has queries, keys and values in one.
QUERIES_AND_VALUES = ("query", "value", "q_proj", "v_proj", "c_attn", "q_attn")


class LoraOptions(BaseModel, frozen=True, extra="forbid"):
    """Says how large adapters are and where they lie."""

    rank: int = Field(8, ge=1)
    alpha: int = Field(16, ge=1)  #: what is added is alpha / rank of the product
    #: The last parts of the names of the decoder's layers that get one.
    targets: tuple[str, ...] = QUERIES_AND_VALUES


class Recipe(BaseModel, frozen=True, extra="forbid"):
    """One training plan. Steps count batches of ``videos`` × ``captions``."""

    name: str
    vocabulary_size: int
    videos: int
    captions: int
    max_length: int  #: tokens of a caption, its end among them
    keep_end: bool = True  #: whether a caption that is cut is ended all the same
    #: Whether an epoch is every caption once, each with its video (for one caption a video of a batch); else
    #: it is every video once, with captions that are drawn of its own.
    every_caption: bool = False
    steps: int
    learning_rate: float
    warmup: int
    weight_decay: float
    clip: float
    smoothing: float
    auxiliary_weight: float  #: of what a captioner adds to the loss at each step
    shot_weight: float  #: of the attention that misses the captioned shot
    #: The share of the cross-entropy that a teacher's words take, where there is a teacher.
    soft_weight: float = 0.0
    only: str = ""  #: parameters whose names have this in them are trained, the others stay as they are
    keep_start: bool = False  #: what the start has stays as it is; what reads further streams is trained
    corpus: int | None = None  #: so many of the training videos only, where epochs are to be short
    #: Of the training videos only those whose ids begin with this, such as one set's; the words are those of
    #: all.
    ids: str = ""
    optimizer: Literal["adamw", "adam", "rmsprop"] = "adamw"
    betas: tuple[float, float] = (0.9, 0.98)
    schedule: Schedule = Field(Cosine(), discriminator="kind")
    #: η of the share of true words that are fed (STaTS); with None it is ``forcing`` throughout.
    forcing_eta: float | None = 24.0
    forcing: float = Field(1.0, ge=0, le=1)
    #: How many steps an epoch of the schedules is; None: as many as show every video once.
    epoch_steps: int | None = None
    phases: Mapping[str, int] = {}  #: the captioner's own, by name, and how many steps each has
    #: Phase → how many times it goes through all captions, in the place of its number of steps.
    epochs: Mapping[str, float] = {}
    most_steps: int | None = Field(None, ge=1)  #: of each phase that has epochs, for a run that tries it
    average_decay: float
    distractors: float = 0.5  #: the share of longer samples that have shots of other pictures
    lengths: tuple[float, ...]  #: odds of 1, 2, … steps
    validate_every: int  #: steps; 0 for once an epoch
    held_out: int
    self_critical_steps: int
    self_critical_rate: float
    self_critical_samples: int = Field(ge=2)  # each is judged by the mean of the others
    self_critical_captions: int
    #: What weights are kept by; loss is that of the first captions of the held-out items.
    select: Literal["cider", "bleu4", "meteor", "rouge_l", "sum", "loss"] = "cider"
    patience: int | None = Field(None, ge=1)  #: validations without a better one after which a phase ends
    #: In so many parts a batch is computed, one after another, where it does not fit into memory.
    accumulate: int = Field(1, ge=1)
    self_critical_every: int  #: steps between validations; 0 for once an epoch
    self_critical_weight: float
    self_critical_temperature: float = 1.0
    rewards: RewardWeights = RewardWeights()
    #: What a sample's reward is compared with, the mean of the video's other samples, or the reward of the
    #: caption that is written greedily (Rennie et al. 2017).
    baseline: Literal["others", "greedy"] = "others"
    #: MIXER's Δ (Ranzato et al. 2016): every epoch so many words more, counted from each caption's end, are
    #: sampled and rewarded, those before are given and learned by cross-entropy. With 0 whole captions are
    #: sampled, and cross-entropy of whole captions has the rest of ``self_critical_weight``.
    mixer_words: int = Field(0, ge=0)
    #: The search that weights are chosen by, which ``evaluate`` takes up from the checkpoint.
    decoding: DecodingOptions = DecodingOptions()
    lora: LoraOptions = LoraOptions()  #: of the adapters of a pretrained captioner
    #: Whether all batches of videos have the shapes of the longest video and caption, so that each step makes
    #: the same calls and can be captured; it computes the padding too.
    fixed_shapes: bool = False
    seed: int = 2020

    @property
    def needs_meteor(self) -> bool:
        """Whether weights are kept by METEOR, which starts a Java process at each validation."""
        return self.select in ("meteor", "sum")

    @property
    def search(self) -> DecodingOptions:
        """Returns the search that weights are chosen by; attention is not kept."""
        return self.decoding.changed(attention=False)

    def rate(self, step: int, steps: int, epoch: float) -> float:
        """Returns the learning rate of a step; the first ``warmup`` steps rise in a straight line.

        Args:
            step: of the phase.
            steps: the phase's.
            epoch: how many epochs ``step`` steps are.
        """
        warm = min(1.0, (step + 1) / self.warmup) if self.warmup else 1.0
        return self.learning_rate * warm * self.schedule.share(TrainingMoment(step / steps, epoch))

    def describe_slow_rate(self, steps_per_epoch: int) -> str:
        """Describes that the rate of the first phase rises too slowly for its steps; "" where it does not.

        steps_per_epoch: of the schedule, where the recipe has no ``epoch_steps``.
        """
        epoch = self.epoch_steps or steps_per_epoch
        looked_at = range(min(self.steps, max(10 * epoch, 2 * self.warmup)))
        rates = [self.rate(step, self.steps, step / epoch) for step in looked_at]
        highest = max(rates, default=self.learning_rate)
        if highest > self.learning_rate / 2:
            return ""
        change = "schedule.first=1" if isinstance(self.schedule, HoldAndDrop) else "warmup=0"
        return (
            f"Little is learned: in the {self.steps} steps of this run the learning rate rises to "
            f"{highest:.2g} of {self.learning_rate:.2g}. Without a rise: --set {change}."
        )

    def with_steps(self, steps: int) -> Self:
        """Returns the recipe with another number of steps in its first phase, and at most as many in others.

        The learning rate rises over half of them at most. Of a recipe in epochs it is the most of each phase.
        """
        update: dict[str, Any] = {"warmup": min(self.warmup, steps // 2)}
        if self.epochs:
            return self.model_copy(update={**update, "most_steps": steps})
        lengths = {"": self.steps, **self.phases, "self_critical": self.self_critical_steps}
        first = next((phase for phase, length in lengths.items() if length), "")
        lengths = {phase: min(length, steps) for phase, length in lengths.items()} | {first: steps}
        update |= {"steps": lengths.pop(""), "self_critical_steps": lengths.pop("self_critical")}
        return self.model_copy(update={**update, "phases": lengths})

    def without_rewards(self) -> Self:
        """Returns the recipe without self-critical steps."""
        epochs = {phase: count for phase, count in self.epochs.items() if phase != "self_critical"}
        return self.model_copy(update={"epochs": epochs, "self_critical_steps": 0})

    def in_steps(self, captions: int) -> Self:
        """Returns the recipe with lengths and validations in steps, for a training split of so many captions.

        An epoch is once through all captions.
        """
        epoch_steps = max(1, -(-captions // (self.videos * self.captions)))
        every = {"validate_every": self.validate_every, "self_critical_every": self.self_critical_every}
        update: dict[str, Any] = {name: steps or epoch_steps for name, steps in every.items()}
        if self.epochs:
            steps = {phase: round(count * epoch_steps) for phase, count in self.epochs.items()}
            steps = {phase: min(count, self.most_steps or count) for phase, count in steps.items()}
            update |= {STEPS_OF[phase]: steps.pop(phase) for phase in STEPS_OF if phase in steps}
            update |= {"phases": {**self.phases, **steps}, "epoch_steps": epoch_steps}
        return self.model_copy(update=update)

    def words_rewarded(self, epoch: float) -> int | None:
        """Returns how many last words of a true caption, its end among them, samples replace (MIXER)."""
        return self.mixer_words * (1 + int(epoch)) if self.mixer_words else None

    def teacher_forcing(self, epoch: float) -> float:
        """Returns the share of true words among those that the decoder is fed."""
        if self.forcing_eta is None:
            return self.forcing
        return compute_forcing_ratio(epoch, self.forcing_eta)
