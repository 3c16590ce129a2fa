"""Options of ``python -m app train`` that a run would leave unread: they are refused, never ignored.

Each way of training names the options that it does not read, with the reason; what is not named is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from extractors.errors import ReelwordError
from training.recipes.papers import PaperRun
from training.recipes.recipe import Recipe
from training.recipes.recipe_book import RECIPES

#: Option → why it is not read.
Unread = dict[str, str]


class UnreadOption(ReelwordError, ValueError):
    """An option that was given and would not be read; the message names it and says why."""

    code = "unread_option"
    hint = "Leave the option out, or choose a recipe that reads it."


@dataclass(frozen=True)
class TrainOptions:
    """What the command line has of the options that not every run reads; None is what it does not have."""

    start: Path | None = None
    streams: str | None = None
    teachers: Sequence[str] | None = None
    data_set: str | None = None
    paper: str | None = None
    steps: int | None = None
    self_critical: bool | None = None

    @property
    def options(self) -> tuple[str, ...]:
        """Their names, as they were typed."""
        by_name = {
            "--start": self.start,
            "--streams": self.streams,
            "--teacher": self.teachers or None,
            "--data-set": self.data_set,
            "--paper": self.paper,
            "--steps": self.steps,
            "--self-critical": self.self_critical or None,
            "--no-self-critical": None if self.self_critical is None or self.self_critical else True,
        }
        return tuple(option for option, value in by_name.items() if value is not None)

    def refuse(self, unread: Unread) -> None:
        """Raises UnreadOption for the first one given of those that are not read."""
        for option in self.options:
            if option in unread:
                raise UnreadOption(f"{option}: {unread[option]}")


def unread_as_paper(run: PaperRun) -> Unread:
    """By a captioner that is trained as in its paper."""
    name = run.recipe.name
    unread = {
        "--start": f"{name} trains from nothing, as the paper does; recipe finetune goes on from a captioner",
        "--teacher": _no_teacher(name),
        "--data-set": f"{name} is for {run.data_set}, which --data has to hold; leave it out",
        "--paper": f"{name} has the splits and words of {run.paper}'s paper; leave it out",
        "--steps": f"{name} is as many epochs long as the paper says; leave it out",
    }
    return {**unread, **({} if "self_critical" in run.epochs else _no_reward(name))}


def unread_by_embedding(recipe: Recipe) -> Unread:
    """By the embedding that picks among captions."""
    name = "semantic_embedding"
    return {
        "--teacher": _no_teacher(recipe.name),
        "--data-set": f"{name} learns from pictures alone, not from a set of videos",
        "--paper": f"{name} learns from pictures alone, which have no paper's splits; leave it out",
        **_no_reward(name),
    }


def unread_on_videos(recipe: Recipe, start: Path | None) -> Unread:
    """By a captioner that learns from a captioned set of videos, on from ``start`` or from nothing."""
    unread = {"--teacher": f"teachers read pictures, not a set of videos; with {_taught()} and no --data-set"}
    if start is not None:
        unread["--streams"] = f"{start} is fed with the streams that it was trained on; leave it out"
    if recipe.only:
        unread["--data-set"] = f"{recipe.name} learns from shots of pictures, not from a set of videos"
    if recipe.ids:
        unread["--data-set"] = f"{recipe.name} learns from the pictures of {recipe.ids.rstrip('/')} alone"
    return {**unread, **({} if recipe.self_critical_steps else _no_reward(recipe.name))}


def unread_on_pictures(recipe: Recipe) -> Unread:
    """By a captioner that learns from pictures and pans over them."""
    unread = {"--paper": "whose splits and words a set of videos has; name the set too, by --data-set"}
    if not recipe.soft_weight:
        unread["--teacher"] = _no_teacher(recipe.name)
    return {**unread, **({} if recipe.self_critical_steps else _no_reward(recipe.name))}


def unread_with_network(recipe: Recipe) -> Unread:
    """By a captioner that is trained together with its image network."""
    name = recipe.name
    return {
        "--streams": f"{name} begins with the stream that the trained stages read; leave it out",
        "--data-set": f"{name} learns from pictures alone, not from a set of videos",
        "--paper": f"{name} learns from pictures alone, which have no paper's splits; leave it out",
        **_no_reward(name),
    }


def _no_teacher(recipe: str) -> str:
    return f"{recipe} has no teacher; with one: {_taught()}"


def _taught() -> str:
    """The recipes that learn from teachers."""
    names = [name for name, recipe in RECIPES.items() if recipe.soft_weight]
    return f"--recipe {' or '.join(names)}"


def _no_reward(name: str) -> Unread:
    why = f"{name} has no self-critical steps; leave it out"
    return {"--self-critical": why, "--no-self-critical": why}
