"""What the commands do: join recipe, data and captioner for a run, or checkpoint and data for a table."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from extractors.efficientnet import EfficientNetLite2
from extractors.efficientnet_stages import EfficientNetStages
from extractors.extractor import OLDEST
from extractors.features import StreamSpec
from models.captioner import Captioner
from models.checkpoint import Card, CheckpointError, load_checkpoint, save_checkpoint
from models.registry import captioner_class
from models.service import load_captioner
from models.stream_sets import DEMO, StreamSet
from models.vocabulary import Vocabulary
from training.dataset import Batches, Captioned, Describer, hold_out, load_training_sets
from training.feature_cache import VIEWS
from training.loop import Trainer
from training.pseudo_video import Shots
from training.recipes import DEMO_CONFIGS, Recipe
from training.run import Run
from training.self_critical import SelfCritical
from training.soft_targets import Reading, SoftTargets, soft_targets

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
    teacher: str | None = None,
) -> Path:
    """Train or go on training; returns the best checkpoint's path.

    start: weights to begin with. streams: what the captioner is fed with. teacher: a captioner's name or
    checkpoint, whose probabilities are learned beside the captions. Raises FileNotFoundError where
    ``data`` holds no set, NeedsVideo for streams that pictures do not have.
    """
    torch.set_num_threads(threads)
    config: Any = DEMO_CONFIGS[name]()
    meal = Meal.of(streams, [stream.name for stream in config.streams])
    items = load_training_sets(meal.describers, data, cache)
    kept, held_out = hold_out(items, recipe.held_out, SELECTION_SET, SELECTION_SEED)
    run = Run(out)
    trainer = _trainer(recipe, kept, held_out, run, meal, time.monotonic())
    if teacher is not None:
        soft = learned_from(teacher, trainer.batches, cache)
        trainer = replace(trainer, batches=replace(trainer.batches, soft=soft))
    torch.manual_seed(recipe.seed)
    captioner = captioner_class(name)(config, trainer.batches.vocabulary)
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
    """A stream set, the streams that a captioner eats of it, and the networks that make them of pictures."""

    streams: StreamSet
    names: tuple[str, ...]
    describers: tuple[Describer, ...]

    @classmethod
    def of(cls, streams: StreamSet, names: Sequence[str]) -> Meal:
        """Raises NeedsVideo for a set that looks at what stills and pans over them do not show."""
        if others := set(streams.extractors) - PICTURE_NETWORKS.keys():
            raise NeedsVideo(
                f"the stream set {streams.name} looks at video ({', '.join(sorted(others))}), "
                "and these sets are pictures"
            )
        makers = [name for name in streams.of(names).extractors if name in PICTURE_NETWORKS]
        return cls(streams, tuple(names), tuple(PICTURE_NETWORKS[name]() for name in makers))

    @property
    def specs(self) -> dict[str, StreamSpec]:
        """The name tag of each stream."""
        made = {name: each.network.spec for each in self.describers for name in each.network.shapes}
        return {name: made[name] for name in self.names}


#: The whole picture and its mirror image: of the stages' wide maps no more is kept.
STAGE_VIEWS = 2
#: Extractor → its network and how many views of a picture are kept of it.
PICTURE_NETWORKS: dict[str, Callable[[], Describer]] = {
    OLDEST: lambda: Describer(EfficientNetLite2(), VIEWS),
    EfficientNetStages.name: lambda: Describer(EfficientNetStages(), STAGE_VIEWS),
}


def learned_from(teacher: str, batches: Batches, cache: Path) -> SoftTargets:
    """What the teacher would write in each place of the captions of ``batches``.

    Raises CheckpointError where its words or its streams are others than this run's.
    """
    checkpoint = load_captioner(teacher)
    if checkpoint.captioner.vocabulary.words != batches.vocabulary.words:
        raise CheckpointError(f"{teacher} has another vocabulary than this run; it cannot teach it.")
    encoded = [
        (item.id, item.pictures, [batches.vocabulary.encode(caption) for caption in item.captions])
        for item in batches.items
    ]
    reading = Reading(encoded, batches.max_length)
    return soft_targets(checkpoint.captioner, checkpoint.sha256, reading, cache, batches.dtype)


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
            streams=meal.specs,
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
