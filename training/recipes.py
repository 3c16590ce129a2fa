"""How a captioner is trained: numbers only. What it eats is a stream set, chosen apart."""

from __future__ import annotations

from collections.abc import Callable

from pydantic import BaseModel, ConfigDict

from models.stats import StatsConfig, StreamConfig


class Recipe(BaseModel):
    """One training plan. Steps count batches of ``videos`` × ``captions``."""

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
    average_decay: float
    validate_every: int
    held_out: int
    self_critical_steps: int
    self_critical_rate: float
    self_critical_samples: int
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
    average_decay=0.998,
    validate_every=300,
    held_out=500,
    self_critical_steps=600,
    self_critical_rate=2e-4,
    self_critical_samples=5,
    self_critical_captions=2,
    self_critical_every=100,
    self_critical_weight=0.9,
)

RECIPES = {recipe.name: recipe for recipe in (DEMO,)}


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
DEMO_CONFIGS: dict[str, Callable[[], BaseModel]] = {"stats": demo_stats}
