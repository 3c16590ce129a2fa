"""Lists the options of ``python -m lab train`` that a run on pictures would leave unread."""

from __future__ import annotations

from training.recipes.recipe import Recipe
from training.recipes.train_options import Unread
from training.sessions.session_choice import explain_no_reward, explain_no_teacher


def list_unread_by_embedding(recipe: Recipe) -> Unread:
    """Lists the options that training the embedding does not read."""
    name = "semantic_embedding"
    return {
        "--teacher": explain_no_teacher(recipe.name),
        "--paper": f"{name} learns from pictures alone, which have no paper's splits; leave it out",
        **_explain_no_features(name),
        **explain_no_reward(name),
    }


def list_unread_by_embedding_of_videos(recipe: Recipe) -> Unread:
    """Lists the options that training the embedding on a set of videos does not read."""
    name = "semantic_embedding"
    start = {"--start": f"{name} of a set of videos begins from nothing; leave it out"}
    return {**start, "--teacher": explain_no_teacher(recipe.name), **explain_no_reward(name)}


def list_unread_on_pictures(recipe: Recipe) -> Unread:
    """Lists the options that training on pictures does not read."""
    unread = {
        "--paper": "whose splits and words a set of videos has; name the set too, by --data-set",
        **_explain_no_features(recipe.name),
    }
    if not recipe.soft_weight:
        unread["--teacher"] = explain_no_teacher(recipe.name)
    return {**unread, **({} if recipe.self_critical_steps else explain_no_reward(recipe.name))}


def _explain_no_features(name: str) -> Unread:
    return {"--features": f"{name} makes several views of each picture itself; name a set by --data-set"}
