"""Recipes are read from a file: what one does not name it has from the one that it extends."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from training.recipes.demo_recipes import CONTINUING, DEMO, FOR_ONE, RECIPES, RecipeFile

BASE = "\n".join(f"{name} = {value!r}" for name, value in DEMO.model_dump(exclude_defaults=True).items())
BASE = BASE.replace("(", "[").replace(")", "]")


def book(folder: Path, text: str) -> RecipeFile:
    file = folder / "recipes.toml"
    file.write_text(f"[base]\n{BASE}\n{text}")
    return RecipeFile.read(file)


def test_a_recipe_has_the_numbers_of_the_one_that_it_extends(tmp_path: Path) -> None:
    found = book(tmp_path, '[longer]\nextends = "base"\ncontinues = true\nsteps = 7\n')
    assert found.recipes["base"] == DEMO.model_copy(update={"name": "base"})
    assert found.recipes["longer"] == DEMO.model_copy(update={"name": "longer", "steps": 7})
    assert found.continuing == {"longer"}


def test_a_misspelt_number_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="stepps"):
        book(tmp_path, '[other]\nextends = "base"\nstepps = 7\n')


def test_the_marks_name_recipes() -> None:
    assert CONTINUING | FOR_ONE.keys() < RECIPES.keys()
    assert "finetune" not in CONTINUING  # it says by itself what it needs
