"""Recipes: the numbers by which a captioner is trained. Which streams it reads is chosen apart."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from models.dual_afr import DualAFRConfig
from models.fusion import FusionConfig, SpatialConfig
from models.g2l import G2LConfig
from models.refocus import RefocusConfig
from models.semantic_embedding import SemanticEmbedding
from models.stats import StatsConfig, StreamConfig
from training.losses import teacher_forcing_ratio
from training.schedules import Cosine, Moment, Schedule

#: Phase → the field of a recipe that says how long it is.
STEPS_OF = {
    "cross_entropy": "steps",
    "first_step": "first_step_steps",
    "combined": "combined_steps",
    "frozen_key_frames": "frozen_steps",
    "self_critical": "self_critical_steps",
}


class RewardWeights(BaseModel):
    """How much of each metric a reward is; CIDEr-D is 0 to 10, the others 0 to 1."""

    model_config = ConfigDict(frozen=True)
    cider: float = 1.0
    bleu: float = 0.0
    meteor: float = 0.0
    rouge_l: float = 0.0


class Recipe(BaseModel):
    """One training plan. Steps count batches of ``videos`` × ``captions``; lengths: odds of 1, 2, … steps.

    soft_weight: the share of the cross-entropy that a teacher's words take, where there is a teacher.
    only: parameters whose names have this in them are trained, the others stay as they are. frozen: those
    whose names have this in them stay as they are, where an image network is trained too.
    corpus: so many of the training videos only, where epochs are to be short. ids: of the training videos
    only those whose ids begin with this, such as one set's; the words are those of all.
    forcing_eta: η of the share of true words that are fed (STaTS); with None it is ``forcing`` throughout.
    distractors: the share of longer samples that have shots of other pictures.
    epoch_steps: how many steps an epoch of the schedules is; None: as many as show every video once.
    baseline: what a sample's reward is compared with, the mean of the video's other samples, or the reward
    of the caption that is written greedily (Rennie et al. 2017).
    mixer_words: MIXER's Δ (Ranzato et al. 2016): every epoch so many words more, from the end of a caption
    on, are sampled and rewarded, those before are given and learned by cross-entropy. With 0 whole captions
    are sampled, and cross-entropy of whole captions has the rest of ``self_critical_weight``.
    first_step_steps, combined_steps, frozen_steps: refocus's own phases.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    vocabulary_size: int
    videos: int
    captions: int
    max_length: int
    steps: int
    learning_rate: float
    warmup: int
    weight_decay: float
    clip: float
    smoothing: float
    ranking_weight: float
    shot_weight: float
    soft_weight: float = 0.0
    only: str = ""
    frozen: str = ""
    corpus: int | None = None
    ids: str = ""
    optimizer: Literal["adamw", "adam", "rmsprop"] = "adamw"
    betas: tuple[float, float] = (0.9, 0.98)
    schedule: Schedule = Field(Cosine(), discriminator="kind")
    forcing_eta: float | None = 24.0
    forcing: float = Field(1.0, ge=0, le=1)
    epoch_steps: int | None = None
    first_step_steps: int = 0
    combined_steps: int = 0
    frozen_steps: int = 0
    average_decay: float
    distractors: float = 0.5
    lengths: tuple[float, ...]
    validate_every: int
    held_out: int
    self_critical_steps: int
    self_critical_rate: float
    self_critical_samples: int = Field(ge=2)  # each is judged by the mean of the others
    self_critical_captions: int
    self_critical_every: int
    self_critical_weight: float
    self_critical_temperature: float = 1.0
    rewards: RewardWeights = RewardWeights()
    baseline: Literal["others", "greedy"] = "others"
    mixer_words: int = Field(0, ge=0)
    seed: int = 2020

    def rate(self, step: int, steps: int, epoch: float) -> float:
        """Of a phase of ``steps``; the first ``warmup`` of them rise in a straight line."""
        warm = min(1.0, (step + 1) / self.warmup) if self.warmup else 1.0
        return self.learning_rate * warm * self.schedule.share(Moment(step / steps, epoch))

    def in_steps(self, epochs: Mapping[str, float], epoch_steps: int) -> Recipe:
        """With phases as long as ``epochs`` says, by their names, judged after every epoch."""
        steps = {STEPS_OF[phase]: round(count * epoch_steps) for phase, count in epochs.items()}
        every = {"validate_every": epoch_steps, "self_critical_every": epoch_steps}
        return self.model_copy(update={**steps, **every, "epoch_steps": epoch_steps})

    def words_given(self, epoch: float) -> int | None:
        """How many words of a true caption the samples of self-critical training go on from (MIXER)."""
        if not self.mixer_words:
            return None
        return max(0, self.max_length - self.mixer_words * (1 + int(epoch)))

    def teacher_forcing(self, epoch: float) -> float:
        """The share of true words among those that the decoder is fed."""
        if self.forcing_eta is None:
            return self.forcing
        return teacher_forcing_ratio(epoch, self.forcing_eta)


@dataclass(frozen=True)
class RecipeBook:
    """The recipes of recipes.toml.

    continuing: names of those that go on from a captioner. tuning: of those that train the image networks'
    end too. for_one: recipe → the only captioner that has what it trains.
    """

    recipes: Mapping[str, Recipe]
    continuing: frozenset[str]
    tuning: frozenset[str]
    for_one: Mapping[str, str]

    @classmethod
    def read(cls, file: Path) -> RecipeBook:
        """Reads recipes in their order; one may extend another that stands before it."""
        tables = tomllib.loads(file.read_text())
        marks = {
            mark: {name: table.pop(mark) for name, table in tables.items() if mark in table}
            for mark in ("continues", "image_networks", "captioner")
        }
        recipes: dict[str, Recipe] = {}
        for name, table in tables.items():
            base = recipes[table.pop("extends")].model_dump() if "extends" in table else {}
            recipes[name] = Recipe.model_validate({**base, **table, "name": name})
        return cls(
            recipes, frozenset(marks["continues"]), frozenset(marks["image_networks"]), marks["captioner"]
        )


_BOOK = RecipeBook.read(Path(__file__).with_name("recipes.toml"))
RECIPES = _BOOK.recipes
CONTINUING, TUNING, FOR_ONE = _BOOK.continuing, _BOOK.tuning, _BOOK.for_one
DEMO, DEMO_EMBEDDING, FINETUNE = RECIPES["demo"], RECIPES["demo-embedding"], RECIPES["finetune"]


def demo_stats() -> StatsConfig:
    """STaTS at the demo's widths: under 5 million parameters."""
    return StatsConfig(
        streams=(StreamConfig(name="grid", width=1280),),
        embedded=320,
        words=256,
        attention=128,
        hidden=416,
        query=320,
        dropout=0.3,
        tie_words=True,
    )


#: Captioner name → its config at the demo's widths.
DEMO_CONFIGS: dict[str, Callable[[], BaseModel]] = {
    "stats": demo_stats,
    "g2l": G2LConfig.demo,
    "refocus": RefocusConfig.demo,
    "dual_afr": DualAFRConfig.demo,
    "vanilla": FusionConfig.demo,
    "temporal": FusionConfig.demo,
    "spatial": SpatialConfig.demo,
}


class UnknownRecipe(ValueError):
    """No recipe of that name, or none for that captioner; the message lists those there are."""


def recipe_of(name: str | None, captioner: str) -> Recipe:
    """The recipe of that name, or the demo's for None. Raises UnknownRecipe."""
    is_embedding = captioner == SemanticEmbedding.name
    known = [each for each in RECIPES if (each == DEMO_EMBEDDING.name) == is_embedding]
    wanted = name or known[0]
    if wanted not in known:
        raise UnknownRecipe(f"there is no recipe {wanted!r} for {captioner}; there are: {', '.join(known)}")
    if FOR_ONE.get(wanted, captioner) != captioner:
        raise UnknownRecipe(f"{wanted} trains what {FOR_ONE[wanted]} alone has, and not {captioner}")
    return RECIPES[wanted]


#: Captioner → the stream set of its demo, where that is not ``demo``.
DEMO_STREAMS = {"dual_afr": "demo-stages"}
