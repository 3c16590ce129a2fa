"""Lists the options of ``reelword train`` that a run would leave unread.

Each way of training names the options that it does not read, with the reason; what is not named is read.
"""

from __future__ import annotations

from pathlib import Path

from training.recipes.demo_recipes import read_recipes
from training.recipes.paper_recipes import PaperRun
from training.recipes.recipe import Recipe
from training.recipes.train_options import Unread


def list_unread_as_paper(run: PaperRun) -> Unread:
    """Lists the options that training as in a paper does not read."""
    name = run.recipe.name
    unread = {
        "--start": f"{name} trains from nothing, as the paper does; recipe finetune goes on from a captioner",
        "--teacher": explain_no_teacher(name),
        "--data-set": f"{name} is for {run.data_set}, which --data has to hold; leave it out",
        "--paper": f"{name} has the splits and words of {run.paper}'s paper; leave it out",
        "--steps": f"{name} is as many epochs long as the paper says; leave it out",
    }
    return {**unread, **({} if "self_critical" in run.epochs else explain_no_reward(name))}


def list_unread_on_videos(recipe: Recipe, start: Path | None) -> Unread:
    """Lists the options that training on videos, on from ``start`` or from nothing, does not read."""
    unread = {
        "--teacher": "teachers read pictures, not a set of videos; "
        f"with {_name_taught_recipes()} and no --data-set"
    }
    if start is not None:
        unread["--streams"] = f"{start} is fed with the streams that it was trained on; leave it out"
    if recipe.only:
        unread["--data-set"] = f"{recipe.name} learns from shots of pictures, not from a set of videos"
    if recipe.ids:
        unread["--data-set"] = f"{recipe.name} learns from the pictures of {recipe.ids.rstrip('/')} alone"
    return {**unread, **({} if recipe.self_critical_steps else explain_no_reward(recipe.name))}


def explain_no_teacher(recipe: str) -> str:
    return f"{recipe} has no teacher; with one: {_name_taught_recipes()}"


def _name_taught_recipes() -> str:
    """Names the recipes that learn from teachers."""
    names = [name for name, recipe in read_recipes().recipes.items() if recipe.soft_weight]
    return f"--recipe {' or '.join(names)}"


def explain_no_reward(name: str) -> Unread:
    why = f"{name} has no self-critical steps; leave it out"
    return {"--self-critical": why, "--no-self-critical": why}
