"""How a captioner is trained: numbers only. What it eats is a stream set, chosen apart."""

from __future__ import annotations

from collections.abc import Callable

from pydantic import BaseModel, ConfigDict, Field

from models.dual_afr import DualAFRConfig
from models.fusion import FusionConfig, SpatialConfig
from models.g2l import G2LConfig
from models.refocus import RefocusConfig
from models.stats import StatsConfig, StreamConfig


class Recipe(BaseModel):
    """One training plan. Steps count batches of ``videos`` × ``captions``; lengths: odds of 1, 2, … steps.

    soft_weight: the share of the cross-entropy that a teacher's words take, where there is a teacher.
    only: parameters whose names have this in them are trained, the others stay as they are.
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
    average_decay: float
    lengths: tuple[float, ...]
    validate_every: int
    held_out: int
    self_critical_steps: int
    self_critical_rate: float
    self_critical_samples: int = Field(ge=2)  # each is judged by the mean of the others
    self_critical_captions: int
    self_critical_every: int
    self_critical_weight: float
    seed: int = 2020


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
        "lengths": DEMO_LONGER.lengths,
        "self_critical_steps": 500,
        "self_critical_rate": 1e-4,
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

RECIPES = {recipe.name: recipe for recipe in (DEMO, DEMO_LONGER, DEMO_TAUGHT, DEMO_SHOTS, DEMO_SELF_CRITICAL)}


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

#: Captioner → the stream set of its demo, where that is not ``demo``.
DEMO_STREAMS = {"dual_afr": "demo-stages"}
