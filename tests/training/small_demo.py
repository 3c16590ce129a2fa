"""Puts small captioners and short recipes in the place of the demo's."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pydantic import BaseModel

from models.captioners.registry import RegisteredCaptioner
from training.recipes import demo_recipes
from training.recipes.demo_recipes import read_recipes
from training.recipes.recipe import Recipe


def use_demo_config(patch: pytest.MonkeyPatch, name: str, config: BaseModel) -> None:
    """A captioner's demo has this configuration."""
    make = RegisteredCaptioner.make_demo_config

    def make_small(captioner: RegisteredCaptioner) -> BaseModel:
        return config if captioner.name == name else make(captioner)

    patch.setattr(RegisteredCaptioner, "make_demo_config", make_small)


def use_recipe(patch: pytest.MonkeyPatch, recipe: Recipe, name: str) -> None:
    """The recipe of that name is this one."""
    book = read_recipes()
    changed = replace(book, recipes={**book.recipes, name: recipe})
    patch.setattr(demo_recipes, "read_recipes", lambda: changed)
