"""How a captioner is trained: numbers only. What it eats is a stream set, chosen apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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

    model_config = ConfigDict(frozen=True)

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


DEMO = Recipe(
    name="demo",
    vocabulary_size=4100,
    videos=24,
    captions=5,
    max_length=17,
    steps=2100,
    learning_rate=1.5e-3,
    warmup=150,
    weight_decay=1e-4,
    clip=1.0,
    smoothing=0.1,
    ranking_weight=0.1,
    shot_weight=0.0,
    average_decay=0.998,
    lengths=(0.58, 0.06, 0.06, 0.06, 0.06, 0.06, 0.06, 0.06),
    validate_every=300,
    held_out=500,
    self_critical_steps=600,
    self_critical_rate=2e-4,
    self_critical_samples=5,
    self_critical_captions=2,
    self_critical_every=100,
    self_critical_weight=0.9,
    self_critical_temperature=0.5,
)

#: Goes on from a checkpoint of DEMO (``--start``), mostly on stills, whose steps cost a third.
DEMO_LONGER = DEMO.model_copy(
    update={
        "name": "demo-longer",
        "videos": 40,
        "steps": 2600,
        "learning_rate": 8e-4,
        "warmup": 100,
        "validate_every": 325,
        "lengths": (0.86, 0.02, 0.02, 0.02, 0.02, 0.02, 0.02, 0.02),
    }
)

#: Goes on from a checkpoint of STaTS: its temporal attention (eq. 9) is taught which shot a caption is of.
#: Nothing else moves, so that single pictures are captioned as before.
DEMO_SHOTS = DEMO.model_copy(
    update={
        "name": "demo-shots",
        "steps": 300,
        "learning_rate": 2e-3,
        "warmup": 20,
        "validate_every": 150,
        "average_decay": 0.98,
        "shot_weight": 1.0,
        "only": "frame_attention",
        "lengths": (0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0),
    }
)

#: Self-critical steps alone, from the checkpoint given as ``--start``.
DEMO_SELF_CRITICAL = DEMO.model_copy(
    update={
        "name": "demo-self-critical",
        "videos": 40,
        "steps": 0,
        "lengths": (1.0,),
        "average_decay": 0.985,
        "self_critical_steps": 225,
        "self_critical_rate": 2e-4,
        "self_critical_every": 75,
        "self_critical_weight": 0.95,
        "self_critical_temperature": 0.5,
    }
)

#: The other captioners', from scratch with the help of a teacher (``--teacher``), mostly on stills.
DEMO_TAUGHT = DEMO.model_copy(
    update={
        "name": "demo-taught",
        "videos": 40,
        "steps": 2400,
        "learning_rate": 1.8e-3,
        "soft_weight": 0.5,
        "lengths": (0.79, 0.03, 0.03, 0.03, 0.03, 0.03, 0.03, 0.03),
        "validate_every": 400,
    }
)

#: Goes on from a checkpoint that reads the image nets' grid, and trains the last two stages of the first net
#: and the head over both with it (training/tuning_session.py), gently, mostly on stills.
DEMO_TUNED = DEMO.model_copy(
    update={
        "name": "demo-tuned",
        "videos": 40,
        "steps": 400,
        "learning_rate": 2e-4,
        "warmup": 40,
        "average_decay": 0.985,
        "soft_weight": 0.3,
        "lengths": (0.94, 0.06),
        "validate_every": 100,
        "self_critical_steps": 0,
    }
)

#: The same with the head alone, so at a higher rate: it takes the second net in.
DEMO_JOINED = DEMO_TUNED.model_copy(
    update={"name": "demo-joined", "steps": 500, "learning_rate": 5e-4, "frozen": "end.blocks"}
)

#: Goes on from a checkpoint on another grid than it was trained on, such as the tuned nets', with the help of
#: a teacher that reads that grid already.
DEMO_MOVED = DEMO_TAUGHT.model_copy(
    update={
        "name": "demo-moved",
        "steps": 600,
        "learning_rate": 8e-4,
        "warmup": 50,
        "validate_every": 150,
        "self_critical_steps": 0,
    }
)

#: Goes on from a checkpoint a little, so that training/average_weights.py has several that differ.
DEMO_AGAIN = DEMO_MOVED.model_copy(
    update={
        "name": "demo-again",
        "steps": 400,
        "learning_rate": 4e-4,
        "average_decay": 0.985,
        "lengths": (0.94, 0.06),
        "validate_every": 100,
    }
)

#: The same on Flickr8k alone, whose captions differ from the other sets' in style.
DEMO_AGAIN_FLICKR8K = DEMO_AGAIN.model_copy(
    update={
        "name": "demo-again-flickr8k",
        "ids": "flickr8k/",
        "steps": 300,
        "learning_rate": 3e-4,
        "validate_every": 75,
    }
)

#: Goes on from a checkpoint of refocus: the rewards of eq. 21 teach where to refocus, on pseudo-videos that
#: have something to choose from; nothing else moves. A reward is compared with the same video's of the last
#: epoch, so epochs are short. Judged on such videos too.
DEMO_REFOCUS = DEMO.model_copy(
    update={
        "name": "demo-refocus",
        "steps": 0,
        "combined_steps": 400,
        "only": "refocusing",
        "corpus": 1200,
        "learning_rate": 2e-3,
        "warmup": 20,
        "average_decay": 0.98,
        "distractors": 0.8,
        "lengths": (0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0),
        "validate_every": 100,
        "self_critical_steps": 0,
    }
)

#: The video-semantic embedding: many videos a batch, for negatives that are hard.
DEMO_EMBEDDING = DEMO.model_copy(
    update={
        "name": "demo-embedding",
        "videos": 400,
        "captions": 3,
        "steps": 1000,
        "learning_rate": 1e-3,
        "warmup": 100,
        "average_decay": 0.995,
        "distractors": 0.0,
        "lengths": (0.85, 0.05, 0.05, 0.05),
        "validate_every": 250,
    }
)

#: Goes on from any captioner (``--start``) with somebody's own videos: few steps and gentle ones. None are
#: self-critical, since that reward needs the words of many captions.
FINETUNE = DEMO.model_copy(
    update={
        "name": "finetune",
        "videos": 8,
        "captions": 3,
        "steps": 300,
        "learning_rate": 1e-4,
        "warmup": 30,
        "average_decay": 0.98,
        "lengths": (1.0,),
        "validate_every": 50,
        "held_out": 0,
        "self_critical_steps": 0,
    }
)

#: Recipes that train the image networks' end too.
TUNING = (DEMO_TUNED.name, DEMO_JOINED.name)
#: Recipes that are gentle, or move a part alone: they go on from a captioner.
CONTINUING = frozenset(
    {
        *TUNING,
        *(each.name for each in (DEMO_LONGER, DEMO_SHOTS, DEMO_REFOCUS, DEMO_SELF_CRITICAL)),
        *(each.name for each in (DEMO_MOVED, DEMO_AGAIN, DEMO_AGAIN_FLICKR8K)),
    }
)
#: Recipe → the captioner that has what it trains.
FOR_ONE = {DEMO_SHOTS.name: "stats", DEMO_REFOCUS.name: "refocus"}

RECIPES = {
    recipe.name: recipe
    for recipe in (
        *(DEMO, DEMO_LONGER, DEMO_TAUGHT, DEMO_SHOTS, DEMO_REFOCUS, DEMO_SELF_CRITICAL),
        *(DEMO_TUNED, DEMO_JOINED, DEMO_MOVED, DEMO_AGAIN, DEMO_AGAIN_FLICKR8K, DEMO_EMBEDDING, FINETUNE),
    )
}


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
