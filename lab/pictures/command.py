"""Trains on pictures: ``python -m lab train``, with all that ``reelword train`` has, and the demo's recipes.

python -m lab train stats --data DATA            # the demo, from nothing
python -m lab train semantic_embedding --data DATA
python -m lab train semantic_embedding --data VATEX --data-set vatex    # as the challenge's paper has it
"""

from __future__ import annotations

from pathlib import Path

from app.cli.training.train import make_train
from lab.pictures.picture_options import (
    list_unread_by_embedding,
    list_unread_by_embedding_of_videos,
    list_unread_on_pictures,
)
from models.captioners.registry import find_captioner, find_stream_set
from models.checkpoint import read_card
from models.stream_set import DEMO
from training.datasets.registry import SetFolder
from training.optimization.run_folder import RunSettings
from training.recipes.demo_recipes import read_recipes
from training.recipes.recipe import Recipe
from training.recipes.train_options import StartMissing, TrainOptions
from training.sessions.session_choice import EMBEDDING

#: What the paper feeds its embedding with, and all members of its fusion.
FUSION_STREAMS = "fusion"


def train_on_pictures(
    name: str, plan: Recipe, data: Path, options: TrainOptions, settings: RunSettings
) -> Path:
    """Trains the embedding or a captioner on pictures, once no option is given that would not be read."""
    from lab.pictures.session import train_captioner, train_semantic_embedding

    if name == EMBEDDING and options.data_set is not None:
        from lab.pictures.video_embedding import train_embedding_on_videos

        options.refuse(list_unread_by_embedding_of_videos(plan))
        folder = SetFolder(data, options.data_set, options.paper)
        set_name = options.streams or FUSION_STREAMS
        return train_embedding_on_videos(plan, folder, find_stream_set(set_name), settings)
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
