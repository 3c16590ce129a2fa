"""Reads the recipes that come with the project (recipes.toml), and gives captioners the demo's widths.

The recipes of the papers are in paper_recipes.py; what each number of a recipe means in recipe.py. Which
streams a captioner reads is chosen apart.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel

from extractors.errors import ReelwordError
from models.captioners.dual_afr.network import DualAFRConfig
from models.captioners.g2l.network import G2LConfig
from models.captioners.refocus.network import RefocusConfig
from models.captioners.registry import captioner_class
from models.captioners.semantic_embedding import SemanticEmbedding
from models.captioners.stats.network import STaTSConfig, StreamConfig
from models.captioners.vatex.network import SpatialVatexConfig, VatexConfig
from training.recipes.recipe import Recipe


@dataclass(frozen=True)
class RecipeFile:
    """The recipes of recipes.toml.

    continuing: names of those that go on from a captioner. for_one: recipe → the only captioner that has
    what it trains.
    """

    recipes: Mapping[str, Recipe]
    continuing: frozenset[str]
    for_one: Mapping[str, str]

    @classmethod
    def read(cls, file: Path) -> RecipeFile:
        """Reads recipes in their order; one may extend another that stands before it."""
        tables = tomllib.loads(file.read_text())
        marks = {
            mark: {name: table.pop(mark) for name, table in tables.items() if mark in table}
            for mark in ("continues", "captioner")
        }
        recipes: dict[str, Recipe] = {}
        for name, table in tables.items():
            base = recipes[table.pop("extends")].model_dump() if "extends" in table else {}
            recipes[name] = Recipe.model_validate({**base, **table, "name": name})
        return cls(recipes, frozenset(marks["continues"]), marks["captioner"])


_FILE = RecipeFile.read(Path(__file__).with_name("recipes.toml"))
RECIPES = _FILE.recipes
CONTINUING, FOR_ONE = _FILE.continuing, _FILE.for_one
DEMO, DEMO_EMBEDDING, FINETUNE = RECIPES["demo"], RECIPES["demo-embedding"], RECIPES["finetune"]


def make_stats_config() -> STaTSConfig:
    """Makes STaTS' config at the demo's widths: under 5 million parameters."""
    return STaTSConfig(
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
    "stats": make_stats_config,
    "g2l": G2LConfig.demo,
    "refocus": RefocusConfig.demo,
    "dual_afr": DualAFRConfig.demo,
    "vanilla": VatexConfig.demo,
    "temporal": VatexConfig.demo,
    "spatial": SpatialVatexConfig.demo,
}


def make_demo_config(captioner: str) -> BaseModel:
    """Makes a captioner's config at the demo's widths; its own widths where the demo has none of it.

    Raises UnknownCaptioner.
    """
    make = DEMO_CONFIGS.get(captioner) or captioner_class(captioner).config_class
    return make()


class UnknownRecipe(ReelwordError, ValueError):
    """No recipe of that name, or none for that captioner; the message lists those there are."""

    code = "unknown_recipe"
    hint = "Choose one of those that the message lists."


def find_recipe(name: str | None, captioner: str) -> Recipe:
    """Returns the recipe of that name, or the demo's for None. Raises UnknownRecipe."""
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
