"""Trains on pictures: ``python -m lab train``, with all that ``reelword train`` has, and the demo's recipes.

python -m lab train stats --data DATA            # the demo, from nothing
python -m lab train semantic_embedding --data DATA
"""

from __future__ import annotations

from pathlib import Path

from app.cli.training.train import make_train
from lab.pictures.picture_options import list_unread_by_embedding, list_unread_on_pictures
from models.captioners.registry import find_captioner, find_stream_set
from models.checkpoint import read_card
from models.stream_set import DEMO
from training.optimization.run_folder import RunSettings
from training.recipes.demo_recipes import read_recipes
from training.recipes.recipe import Recipe
from training.recipes.train_options import StartMissing, TrainOptions
from training.sessions.session_choice import EMBEDDING


def train_on_pictures(
    name: str, plan: Recipe, data: Path, options: TrainOptions, settings: RunSettings
) -> Path:
    """Trains the embedding or a captioner on pictures, once no option is given that would not be read."""
    from lab.pictures.session import train_captioner, train_semantic_embedding

    if name == EMBEDDING:
        options.refuse(list_unread_by_embedding(plan))
    else:
        options.refuse(list_unread_on_pictures(plan))
    start, teachers = options.start, options.teachers or ()
    if plan.name in read_recipes().continuing and start is None:
        raise StartMissing(f"--recipe {plan.name} goes on from a captioner: give it as --start")
    trained_on = None if start is None else read_card(start).training.get("streams")
    streams = find_stream_set(options.streams or trained_on or _name_demo_streams(name))
    if name == EMBEDDING:
        return train_semantic_embedding(plan, data, settings, start, streams)
    return train_captioner(name, plan, data, settings, start, streams, teachers)


def _name_demo_streams(name: str) -> str:
    """Names the stream set of a captioner's demo, or of the embedding's."""
    return DEMO.name if name == EMBEDDING else find_captioner(name).description.demo_streams


train = make_train(train_on_pictures)
