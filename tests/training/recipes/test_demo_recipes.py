"""Recipes are read from a file: what one does not name it has from the one that it extends."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from training.recipes.demo_recipes import DEMO, RecipeBook, UnknownRecipe, find_recipe, read_recipes

BASE = {"base": DEMO.model_dump(exclude={"name"})}


def test_a_recipe_has_the_numbers_of_the_one_that_it_extends() -> None:
    book = (
        RecipeBook().add(BASE).add({"longer": {"extends": "base", "continues": True, "steps": 7}}, ("g2l",))
    )
    assert book.recipes["base"] == DEMO.model_copy(update={"name": "base"})
    assert book.recipes["longer"] == DEMO.model_copy(update={"name": "longer", "steps": 7})
    assert book.continuing == {"longer"}
    assert book.limited == {"longer": ("g2l",)}


def test_a_misspelt_number_is_refused() -> None:
    with pytest.raises(ValidationError, match="stepps"):
        RecipeBook().add(BASE).add({"other": {"extends": "base", "stepps": 7}})


def test_the_marks_name_recipes() -> None:
    book = read_recipes()
    assert book.continuing | book.limited.keys() < book.recipes.keys()
    assert "finetune" not in book.continuing  # it says by itself what it needs


def test_a_recipe_of_a_captioners_folder_is_for_that_captioner() -> None:
    assert find_recipe("demo-shots", "stats").shot_weight == 1
    with pytest.raises(UnknownRecipe, match="demo-shots trains what stats alone has, and not g2l"):
        find_recipe("demo-shots", "g2l")
