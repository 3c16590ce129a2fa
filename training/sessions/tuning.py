"""The image nets learn too: their end is trained with a captioner that goes on from a checkpoint.

What is kept are two files that belong together: best.safetensors, the captioner, whose card names the new
networks' stream, and tuned.safetensors, what their weights have changed (extractors/catalog/tuned_pair.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from extractors.catalog.efficientnet_lite2 import load_packaged
from extractors.catalog.tuned_pair import TUNED, TUNED_GRID, PairEnd, apply_changes, make_spec, save_changes
from extractors.files import sha256_of
from extractors.pretrained.checkpoint_file import read_checkpoint
from extractors.pretrained.errors import WeightsError
from extractors.pretrained.load import find_weights
from models.captioners.registry import captioner_class
from models.checkpoint import CheckpointError, read_card, save_checkpoint
from models.feature_sources.stream_sets import DEMO_TUNED, DEMO_TUNING
from training.batches.picture_inputs import PictureInputs, cards_of, config_for_streams
from training.optimization.network_tuning import LITE3_GRID, STAGE, NotOnGrid, Tuned
from training.optimization.run_folder import TrainingRun
from training.optimization.trainer import Trainer
from training.recipes.recipe import Recipe
from training.recipes.recipe_book import DEMO_CONFIGS
from training.sessions.pictures import (
    WHOLE_PICTURES,
    CardWriter,
    prepare_training,
    weights_to_start_from,
    with_teacher_targets,
)

#: Beside a run's best captioner, what its networks' weights have changed.
CHANGES = "tuned.safetensors"


def tune_network(
    name: str,
    recipe: Recipe,
    data: Path,
    out: Path,
    cache: Path,
    threads: int,
    start: Path,
    teachers: Sequence[str] = (),
) -> Path:
    """Train both or go on training; returns the best captioner's path.

    start: the captioner to begin with; one that reads a tuned grid begins with those networks' weights.
    teachers: as of ``train_captioner``. Raises NotOnGrid, CheckpointError, WeightsError, and as
    ``PictureInputs.of``.
    """
    torch.set_num_threads(threads)
    config: Any = config_for_streams(DEMO_CONFIGS[name](), DEMO_TUNED)
    if others := [stream.name for stream in config.streams if stream.name != TUNED_GRID]:
        raise NotOnGrid(f"{name} reads {', '.join(others)} too, and not the image networks' grid alone")
    inputs = PictureInputs.of(DEMO_TUNING, [STAGE, LITE3_GRID], cards_of(teachers))
    run = TrainingRun(out)
    trainer, cards = prepare_training(recipe, inputs, data, cache, run)
    trainer = with_teacher_targets(trainer, teachers, inputs, cache)
    torch.manual_seed(recipe.seed)
    captioner = captioner_class(name)(config, trainer.batches.vocabulary)
    captioner.load_state_dict(weights_to_start_from(start, captioner))
    tuned = Tuned(captioner, end_to_start_from(start))
    freeze(tuned, recipe.frozen)
    in_float32(replace(trainer, save_best=both_saver(cards, run))).train(tuned)
    return run.best


def freeze(tuned: Tuned, part: str) -> None:
    """The parameters whose names have ``part`` in them are not trained. Raises ValueError where none has."""
    frozen = [parameter for name, parameter in tuned.named_parameters() if part and part in name]
    if part and not frozen:
        raise ValueError(f"no parameter of {tuned.name} has {part!r} in its name")
    for parameter in frozen:
        parameter.requires_grad_(False)


def in_float32(trainer: Trainer) -> Trainer:
    """With batches as exact as the network computes."""
    return replace(trainer, batches=replace(trainer.batches, dtype=torch.float32))


def end_to_start_from(start: Path) -> PairEnd:
    """The packaged networks' end, or the one that the checkpoint's tuned grid was made by.

    Their changes are looked for beside the checkpoint, where its run has left them, and where the repository
    keeps them. Raises CheckpointError where neither are the ones that its card names, WeightsError.
    """
    end = PairEnd(load_packaged())
    spec = read_card(start).streams.get(TUNED_GRID)
    if spec is None:
        return end
    for file in _changes_near(start):
        if sha256_of(file) == spec.weights_sha256:
            apply_changes(end, read_checkpoint(file))
            return end
    raise CheckpointError(
        f"{start} reads the grid of tuned networks ({spec.weights_sha256[:12]}…) whose weights are neither "
        f"beside it as {CHANGES} nor those that come with the repository."
    )


def _changes_near(start: Path) -> list[Path]:
    found = [start.with_name(CHANGES)]
    with suppress(WeightsError):  # none has come with the repository, or one that is damaged
        found.append(find_weights(TUNED).file)
    return [file for file in found if file.is_file()]


def both_saver(cards: CardWriter, run: TrainingRun) -> Callable[[Any, float, str], None]:
    """Writes the networks' changes, and then the captioner, whose card says which changes they are.

    Where a kill comes between the two, the run takes the same steps again and writes both.
    """
    untouched = PairEnd(load_packaged())
    packaged = [cards.inputs.specs[name].weights_sha256 for name in (STAGE, LITE3_GRID)]

    def save(tuned: Tuned, score: float, where: str) -> None:
        card = cards.card(tuned.captioner.name, WHOLE_PICTURES, score, where)
        changes = save_changes(tuned.end, untouched, run.folder / CHANGES)
        streams = {TUNED_GRID: make_spec(changes, *packaged)}
        training = {**card.training, "streams": DEMO_TUNED.name}
        save_checkpoint(run.best, tuned.captioner, replace(card, streams=streams, training=training))

    return save
