"""Recipes are read from a file: what one does not name it has from the one that it extends."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from training.recipes.demo_recipes import DEMO, RecipeBook, UnknownRecipe, find_recipe, read_recipes
from training.recipes.paper_recipes import find_paper_run

BASE = {"base": DEMO.model_dump(exclude={"name"})}


def test_a_recipe_has_the_numbers_of_the_one_that_it_extends() -> None:
    book = (
        RecipeBook().add(BASE).add({"longer": {"extends": "base", "continues": True, "steps": 7}}, ("g2l",))
    )
    assert book.recipes["base"] == DEMO.model_copy(update={"name": "base"})
    assert book.recipes["longer"] == DEMO.model_copy(update={"name": "longer", "steps": 7})
    assert book.continuing == {"longer"}
    assert book.limited == {"longer": ("g2l",)}


def test_steps_are_the_first_phase_s_and_the_most_of_later_ones() -> None:
    """The rate rises over half of them at most, so that a run of a few steps learns."""
    short = DEMO.with_steps(20)
    assert (short.steps, short.self_critical_steps, short.warmup) == (20, 20, 10)
    assert short.describe_slow_rate(100) == ""
    longer = DEMO.with_steps(5000)
    assert (longer.steps, longer.self_critical_steps, longer.warmup) == (5000, 600, DEMO.warmup)
    refocus = find_recipe("demo-refocus", "refocus").with_steps(3)
    assert (refocus.steps, set(refocus.phases.values())) == (0, {3})
    paper = find_paper_run("paper-msvd", "g2l").recipe.with_steps(4).in_steps(1000)
    assert paper.steps == 4
    assert "--set schedule.first=1" in paper.describe_slow_rate(1)
    slow = DEMO.model_copy(update={"steps": 4}).describe_slow_rate(100)
    assert slow.startswith("Little is learned: in the 4 steps of this run the learning rate rises to ")
    assert "--set warmup=0" in slow


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
