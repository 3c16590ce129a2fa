"""Reads recipes: those of every captioner (recipes.toml), and those in a captioner's own folder.

The recipes of the papers are in paper_recipes.py; what each number of a recipe means in recipe.py. Which
streams a captioner reads is chosen apart.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from extractors.errors import ReelwordError
from models.captioners.registry import list_captioners, list_folders
from models.captioners.semantic_embedding import SemanticEmbedding
from training.recipes.recipe import Recipe

#: What a recipe's table may say beside its numbers.
MARKS = ("extends", "continues")


@dataclass(frozen=True)
class RecipeBook:
    """Holds recipes by their names."""

    recipes: Mapping[str, Recipe] = field(default_factory=dict)
    #: Names of those that go on from a captioner.
    continuing: frozenset[str] = frozenset()
    #: Recipe → the only captioners that have what it trains.
    limited: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def add(self, tables: Mapping[str, Mapping[str, Any]], captioners: tuple[str, ...] = ()) -> Self:
        """Returns the book with more recipes: name → its numbers; one may extend another that stands before.

        captioners: the only ones that have what they train; none where any has. Raises ValidationError where
        a number is missing, or has no name that a recipe knows.
        """
        recipes = dict(self.recipes)
        for name, table in tables.items():
            base = recipes[table["extends"]].model_dump() if "extends" in table else {}
            numbers = {key: value for key, value in table.items() if key not in MARKS}
            recipes[name] = Recipe.model_validate({**base, **numbers, "name": name})
        limited = dict.fromkeys(tables, captioners) if captioners else {}
        return type(self)(
            recipes,
            self.continuing | {name for name, table in tables.items() if table.get("continues")},
            {**self.limited, **limited},
        )


_SHARED = RecipeBook().add(tomllib.loads(Path(__file__).with_name("recipes.toml").read_text()))
DEMO, DEMO_EMBEDDING, FINETUNE, FINETUNE_LORA = (
    _SHARED.recipes[name] for name in ("demo", "demo-embedding", "finetune", "finetune-lora")
)
#: Recipes that train something else than captioners of models/captioners.
APART = {DEMO_EMBEDDING.name: "embedding", FINETUNE_LORA.name: "pretrained"}


class UnknownRecipe(ReelwordError, ValueError, code="unknown_recipe"):
    """No recipe of that name, or none for that captioner; the message lists those there are."""

    hint = "Choose one of those that the message lists."


def read_recipes() -> RecipeBook:
    """Reads all recipes, those of recipes.toml first."""
    book = _SHARED
    for folder in list_folders():
        book = book.add(folder.description.recipes, tuple(folder.kinds))
    return book


def find_recipe(name: str | None, captioner: str) -> Recipe:
    """Returns the recipe of that name, or the demo's for None. Raises UnknownRecipe."""
    book, kind = read_recipes(), "embedding" if captioner == SemanticEmbedding.name else None
    if kind is None and captioner not in list_captioners():
        kind = "pretrained"
    fitting = [each for each in book.recipes if APART.get(each) == kind]
    chosen = name or fitting[0]
    if chosen not in fitting:
        raise UnknownRecipe(f"there is no recipe {chosen!r} for {captioner}; there are: {', '.join(fitting)}")
    trained = book.limited.get(chosen, (captioner,))
    if captioner not in trained:
        raise UnknownRecipe(f"{chosen} trains what {', '.join(trained)} alone has, and not {captioner}")
    return book.recipes[chosen]
