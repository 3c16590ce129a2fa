"""What the commands do: join recipe, data and captioner for a run, or checkpoint and data for a table."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from extractors.efficientnet import EfficientNetLite2
from extractors.extractor import OLDEST
from models.captioner import Captioner
from models.checkpoint import Card, CheckpointError, load_checkpoint, save_checkpoint
from models.registry import captioner_class
from models.stream_sets import DEMO, StreamSet
from models.vocabulary import Vocabulary
from training.dataset import Batches, Captioned, hold_out, load_training_sets
from training.loop import Trainer
from training.pseudo_video import Shots
from training.recipes import DEMO_CONFIGS, Recipe
from training.run import Run
from training.self_critical import SelfCritical

SELECTION_SET = "flickr8k/"
#: The same for every run, so that no run trains on what another is chosen by.
SELECTION_SEED = 2020


def train_captioner(
    name: str,
    recipe: Recipe,
    data: Path,
    out: Path,
    cache: Path,
    threads: int,
    start: Path | None = None,
    self_critical: bool = True,
    streams: StreamSet = DEMO,
) -> Path:
    """Train or go on training; returns the best checkpoint's path.

    start: weights to begin with. streams: what the captioner is fed with. Raises FileNotFoundError where
    ``data`` holds no set, NeedsVideo for streams that pictures do not have.
    """
    torch.set_num_threads(threads)
    network = picture_network(streams)
    items = load_training_sets(network, data, cache)
    kept, held_out = hold_out(items, recipe.held_out, SELECTION_SET, SELECTION_SEED)
    run = Run(out)
    meal = Meal(streams, network)
    trainer = _trainer(recipe, kept, held_out, run, meal, time.monotonic())
    torch.manual_seed(recipe.seed)
    captioner = captioner_class(name)(DEMO_CONFIGS[name](), trainer.batches.vocabulary)
    if start is not None:
        captioner.load_state_dict(weights_to_start_from(start, captioner))
    train_only(captioner, recipe.only)
    trainer.train(captioner)
    if self_critical:
        supervised = out / "cross_entropy.safetensors"
        if not supervised.exists():
            shutil.copy(run.best, supervised)
        captioner = load_checkpoint(supervised).captioner
        trainer.refine(captioner, SelfCritical.of(recipe, kept, trainer.batches.vocabulary.words))
    return run.best


class NeedsVideo(ValueError):
    """The stream set looks at what pictures do not show; the message says at what."""


@dataclass(frozen=True, eq=False)
class Meal:
    """A stream set and the network that makes its one stream."""

    streams: StreamSet
    network: EfficientNetLite2


def picture_network(streams: StreamSet) -> EfficientNetLite2:
    """The network behind a set that stills and pans over them can be described by. Raises NeedsVideo."""
    if set(streams.extractors) != {OLDEST}:
        others = ", ".join(name for name in streams.extractors if name != OLDEST)
        raise NeedsVideo(
            f"the stream set {streams.name} looks at video ({others}), and these sets are pictures"
        )
    return EfficientNetLite2()


def train_only(captioner: nn.Module, part: str) -> None:
    """Freeze the parameters whose names lack ``part``. Raises ValueError where none has it."""
    for name, parameter in captioner.named_parameters():
        parameter.requires_grad_(part in name)
    if not any(parameter.requires_grad for parameter in captioner.parameters()):
        raise ValueError(f"no parameter of this captioner has {part!r} in its name")


def weights_to_start_from(start: Path, captioner: Captioner[Any, Any]) -> dict[str, torch.Tensor]:
    """Raises CheckpointError where the words or the widths of ``start`` are others than this run's."""
    given = load_checkpoint(start).captioner
    if given.vocabulary.words != captioner.vocabulary.words or given.config != captioner.config:
        raise CheckpointError(f"{start} has another vocabulary or config than this run; start without it.")
    weights: dict[str, torch.Tensor] = given.state_dict()
    return weights


def _trainer(
    recipe: Recipe,
    kept: list[Captioned],
    held_out: list[Captioned],
    run: Run,
    meal: Meal,
    started: float,
) -> Trainer:
    captions = (caption for item in kept for caption in item.captions)
    vocabulary = Vocabulary.from_captions(captions, size=recipe.vocabulary_size)
    precision = torch.bfloat16 if torch.ops.mkldnn._is_mkldnn_bf16_supported() else torch.float32
    batches = Batches(
        items=kept,
        vocabulary=vocabulary,
        videos=recipe.videos,
        captions=recipe.captions,
        max_length=recipe.max_length,
        shots=Shots(recipe.lengths),
        seed=recipe.seed,
        dtype=precision,
    )
    save = _saver(recipe, kept, run, meal, started)
    return Trainer(recipe, batches, held_out, run, save, precision)


def _saver(
    recipe: Recipe, kept: list[Captioned], run: Run, meal: Meal, started: float
) -> Callable[[Captioner[Any, Any], float, str], None]:
    ids = [item.id for item in kept]

    def save(captioner: Captioner[Any, Any], cider: float, where: str) -> None:
        card = Card(
            captioner=captioner.name,
            streams=dict.fromkeys(meal.streams.streams, meal.network.spec),
            scores={"held-out training pictures": {"cider": round(cider, 2), "n": recipe.held_out}},
            training={
                "recipe": recipe.model_dump(),
                "streams": meal.streams.name,
                "chosen_at": where,
                "hours_this_session": round((time.monotonic() - started) / 3600, 2),
                "ids": ids,
            },
        )
        save_checkpoint(run.best, captioner, card)

    return save
