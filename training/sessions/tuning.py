"""Trains the end of the image networks together with a captioner that goes on from a checkpoint.

What is kept are two files that belong together: best.safetensors, the captioner, whose card names the new
networks' stream, and tuned.safetensors, what their weights have changed (extractors/catalog/tuned_pair.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import torch

from extractors.catalog.efficientnet_lite2 import load_packaged
from extractors.catalog.tuned_pair import TUNED, TUNED_GRID, PairEnd, apply_changes, make_spec, save_changes
from extractors.files import sha256_of
from extractors.pretrained.checkpoint_file import read_checkpoint
from extractors.pretrained.errors import WeightsError
from extractors.pretrained.load import find_weights
from models.captioners.registry import captioner_class
from models.checkpoint import CheckpointError, read_card, save_checkpoint
from models.stream_set import DEMO_TUNED, DEMO_TUNING
from training.batches.picture_inputs import PictureInputs, fit_to_streams, list_streams, read_cards
from training.optimization.learner import TrainedNetwork
from training.optimization.network_tuning import LITE3_GRID, STAGE, NotOnGrid, TunedCaptioner
from training.optimization.run_folder import RunSettings
from training.optimization.trainer import BestScore
from training.recipes.demo_recipes import make_demo_config
from training.recipes.recipe import Recipe
from training.sessions.pictures import CheckpointWriter, PictureTraining, load_start_weights

#: Beside a run's best captioner, what its networks' weights have changed.
CHANGES = "tuned.safetensors"


def tune_network(
    name: str,
    recipe: Recipe,
    data: Path,
    settings: RunSettings,
    start: Path,
    teachers: Sequence[str] = (),
) -> Path:
    """Trains both or goes on training them.

    Args:
        name: of the captioner.
        recipe: how both are trained, and which parameters stay as they are.
        data: the folder with archives and captions.
        settings: the run's folder, the features' folder, threads.
        start: the captioner to begin with; one that reads a tuned grid begins with those networks' weights.
        teachers: captioners' names or checkpoints, whose probabilities are learned too.

    Returns:
        The best captioner's path.

    Raises:
        NotOnGrid: the captioner reads more than the networks' grid.
        CheckpointError: start or a teacher is damaged or does not fit.
        WeightsError: the networks' weights are not there.
        StreamMismatch, FileNotFoundError: as of ``train_captioner``.
    """
    torch.set_num_threads(settings.threads)
    config = fit_to_streams(make_demo_config(name), DEMO_TUNED)
    if others := [stream.name for stream in list_streams(config) if stream.name != TUNED_GRID]:
        raise NotOnGrid(f"{name} reads {', '.join(others)} too, and not the image networks' grid alone")
    inputs = PictureInputs.build(DEMO_TUNING, [STAGE, LITE3_GRID], read_cards(teachers), settings.device)
    training = PictureTraining.prepare(recipe, inputs, data, settings, teachers)
    torch.manual_seed(recipe.seed)
    captioner = captioner_class(name)(config, training.batches.vocabulary)
    captioner.load_state_dict(load_start_weights(start, captioner))
    tuned = TunedCaptioner(captioner, load_start_end(start)).to(settings.device)
    freeze(tuned, recipe.frozen)
    # batches as exact as the networks' end computes
    exact = replace(training, batches=replace(training.batches, dtype=torch.float32))
    trainer = replace(exact.make_trainer(make_saver(training.checkpoints)), precision=training.batches.dtype)
    trainer.train(tuned)
    return training.run.best


def freeze(tuned: TunedCaptioner, part: str) -> None:
    """Freezes the parameters whose names have ``part`` in them. Raises ValueError where none has."""
    frozen = [parameter for name, parameter in tuned.named_parameters() if part and part in name]
    if part and not frozen:
        raise ValueError(f"no parameter of {tuned.name} has {part!r} in its name")
    for parameter in frozen:
        parameter.requires_grad_(False)


def load_start_end(start: Path) -> PairEnd:
    """Loads the packaged networks' end, or the one that computed the checkpoint's tuned grid.

    Their changes are looked for beside the checkpoint, where its run has left them, and where the repository
    keeps them. Raises CheckpointError where neither are the ones that its card names, WeightsError.
    """
    end = PairEnd(load_packaged())
    spec = read_card(start).streams.get(TUNED_GRID)
    if spec is None:
        return end
    for file in _find_changes_near(start):
        if sha256_of(file) == spec.weights_sha256:
            apply_changes(end, read_checkpoint(file))
            return end
    raise CheckpointError(
        f"{start} reads the grid of tuned networks ({spec.weights_sha256[:12]}…) whose weights are neither "
        f"beside it as {CHANGES} nor those that come with the repository."
    )


def _find_changes_near(start: Path) -> list[Path]:
    found = [start.with_name(CHANGES)]
    with suppress(WeightsError):  # none has come with the repository, or one that is damaged
        found.append(find_weights(TUNED).file)
    return [file for file in found if file.is_file()]


def make_saver(checkpoints: CheckpointWriter) -> Callable[[TrainedNetwork, BestScore], None]:
    """Makes a function that writes the networks' changes, and then the captioner, whose card names them.

    Where a kill comes between the two, the run takes the same steps again and writes both.
    """
    untouched, run = PairEnd(load_packaged()), checkpoints.run
    packaged = [checkpoints.inputs.specs[name].weights_sha256 for name in (STAGE, LITE3_GRID)]

    def save(network: TrainedNetwork, best: BestScore) -> None:
        if not isinstance(network, TunedCaptioner):
            raise TypeError(f"{network.name} has no networks of its own to be saved")
        card = checkpoints.make_card(network.captioner.name, best)
        changes = save_changes(network.end, untouched, run.folder / CHANGES)
        streams = {TUNED_GRID: make_spec(changes, *packaged)}
        training = {**card.training, "streams": DEMO_TUNED.name}
        save_checkpoint(run.best, network.captioner, replace(card, streams=streams, training=training))

    return save
