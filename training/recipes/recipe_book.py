"""Recipes: the numbers by which a captioner is trained. Which streams it reads is chosen apart."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel

from extractors.errors import ReelwordError
from models.captioners.dual_afr import DualAFRConfig
from models.captioners.g2l import G2LConfig
from models.captioners.refocus import RefocusConfig
from models.captioners.semantic_embedding import SemanticEmbedding
from models.captioners.stats import STaTSConfig, StreamConfig
from models.captioners.vatex import SpatialVatexConfig, VatexConfig
from training.recipes.recipe import Recipe


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


def demo_stats() -> STaTSConfig:
    """STaTS at the demo's widths: under 5 million parameters."""
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
    "stats": demo_stats,
    "g2l": G2LConfig.demo,
    "refocus": RefocusConfig.demo,
    "dual_afr": DualAFRConfig.demo,
    "vanilla": VatexConfig.demo,
    "temporal": VatexConfig.demo,
    "spatial": SpatialVatexConfig.demo,
}


class UnknownRecipe(ReelwordError, ValueError):
    """No recipe of that name, or none for that captioner; the message lists those there are."""

    code = "unknown_recipe"
    hint = "Choose one of those that the message lists."


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
