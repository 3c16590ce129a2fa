"""Trains captioners and the semantic embedding on pictures: joins recipe, data and captioner for a run."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from models.captioner import AnyCaptioner
from models.captioners.registry import captioner_class
from models.captioners.semantic_embedding import SemanticEmbedding, SemanticEmbeddingConfig
from models.checkpoint import (
    Card,
    CheckpointError,
    load_captioner,
    load_checkpoint,
    load_embedding,
    save_checkpoint,
)
from models.feature_sources.stream_sets import DEMO, StreamSet
from models.inputs import rename_streams
from models.vocabulary import Vocabulary
from training.batches.picture_batches import WRITTEN, Batches, with_streams
from training.batches.picture_inputs import PictureInputs, cards_of, config_for_streams
from training.batches.pseudo_video import Shots
from training.batches.teacher_targets import SoftTargets, TeacherReading, soft_targets, together
from training.optimization.embedding import train_embedding
from training.optimization.refocus_phases import train_later_phases
from training.optimization.run_folder import TrainingRun
from training.optimization.trainer import Trainer
from training.precision import training_precision
from training.recipes.recipe import Recipe
from training.recipes.recipe_book import DEMO_CONFIGS

#: What the held-out items were shown as, when a card's score was measured.
WHOLE_PICTURES, AMONG_SHOTS = "held-out training pictures", "held-out training pictures among other shots"


def train_captioner(
    name: str,
    recipe: Recipe,
    data: Path,
    out: Path,
    cache: Path,
    threads: int,
    start: Path | None = None,
    streams: StreamSet = DEMO,
    teachers: Sequence[str] = (),
) -> Path:
    """Train or go on training; returns the best checkpoint's path.

    start: weights to begin with. streams: what the captioner is fed with. teachers: captioners' names or
    checkpoints, whose mean probabilities are learned beside the captions. Raises FileNotFoundError where
    ``data`` holds no set or lacks the recipe's, and as ``PictureInputs.of``, ``cards_of``, ``learned_from``
    and ``weights_to_start_from``.
    """
    torch.set_num_threads(threads)
    config: Any = config_for_streams(DEMO_CONFIGS[name](), streams)
    inputs = PictureInputs.of(streams, [stream.name for stream in config.streams], cards_of(teachers))
    run = TrainingRun(out)
    trainer, cards = prepare_training(recipe, inputs, data, cache, run)
    if recipe.corpus is not None:
        trainer = replace(trainer, batches=trainer.batches.some(recipe.corpus))
    trainer = with_teacher_targets(trainer, teachers, inputs, cache)
    torch.manual_seed(recipe.seed)
    captioner = captioner_class(name)(config, trainer.batches.vocabulary)
    if start is not None:
        captioner.load_state_dict(weights_to_start_from(start, captioner))
    train_only(captioner, recipe.only)

    def partly(phase: str) -> AnyCaptioner:
        after = run.best_after(phase)
        train_only(after, recipe.only)
        return after

    trainer.train(captioner)
    on_shots = replace(trainer, save_best=cards.saver(run, AMONG_SHOTS))
    train_later_phases(captioner, trainer, on_shots, partly)
    return run.best


def train_semantic_embedding(
    recipe: Recipe,
    data: Path,
    out: Path,
    cache: Path,
    threads: int,
    start: Path | None = None,
    streams: StreamSet = DEMO,
) -> Path:
    """The embedding that picks among captions; returns the best checkpoint's path.

    start: weights to begin with, which may have read another grid. Raises FileNotFoundError where ``data``
    holds no set, CheckpointError for a start of other words or widths, and as ``PictureInputs.of``.
    """
    torch.set_num_threads(threads)
    config: Any = config_for_streams(SemanticEmbeddingConfig.demo(), streams)
    inputs = PictureInputs.of(streams, [stream.name for stream in config.streams])
    run = TrainingRun(out)
    trainer, cards = prepare_training(recipe, inputs, data, cache, run)
    trainer = replace(trainer, save_best=cards.saver(run, WHOLE_PICTURES, metric="recall"))
    torch.manual_seed(recipe.seed)
    embedding = SemanticEmbedding(config, trainer.batches.vocabulary)
    if start is not None:
        embedding.load_state_dict(weights_of(load_embedding(start)[0], embedding, start))
    train_embedding(trainer, embedding)
    return run.best


def with_teacher_targets(
    trainer: Trainer, teachers: Sequence[str], inputs: PictureInputs, cache: Path
) -> Trainer:
    """With what the teachers would write; what they alone read of the items is left out from then on."""
    batches = trainer.batches
    soft = learned_from(teachers, batches, cache) if teachers else None
    batches = replace(batches, items=with_streams(batches.items, inputs.names), soft=soft)
    return replace(trainer, batches=batches, held_out=with_streams(trainer.held_out, inputs.names))


def learned_from(teachers: Sequence[str], batches: Batches, cache: Path) -> SoftTargets:
    """What the teachers would write in each place of the captions of ``batches``, on average.

    Raises CheckpointError where one's words are others than this run's.
    """
    encoded = [
        (item.id, item.pictures, [batches.vocabulary.encode(caption) for caption in item.captions])
        for item in batches.items
    ]
    reading = TeacherReading(encoded, batches.max_length)

    def of(teacher: str) -> SoftTargets:
        checkpoint = load_captioner(teacher)
        if checkpoint.captioner.vocabulary.words != batches.vocabulary.words:
            raise CheckpointError(f"{teacher} has another vocabulary than this run; it cannot teach it.")
        return soft_targets(checkpoint.captioner, checkpoint.sha256, reading, cache, batches.dtype)

    return together([of(teacher) for teacher in teachers])


def train_only(captioner: nn.Module, part: str) -> None:
    """Freeze the parameters whose names lack ``part``. Raises ValueError where none has it."""
    for name, parameter in captioner.named_parameters():
        parameter.requires_grad_(part in name)
    if not any(parameter.requires_grad for parameter in captioner.parameters()):
        raise ValueError(f"no parameter of this captioner has {part!r} in its name")


def weights_to_start_from(start: Path, captioner: AnyCaptioner) -> dict[str, torch.Tensor]:
    """Of a captioner that may have had its streams by other names.

    Raises CheckpointError where the words or the widths of ``start`` are others than this run's.
    """
    return weights_of(load_checkpoint(start).captioner, captioner, start)


def weights_of(given: Any, network: Any, start: Path) -> dict[str, torch.Tensor]:
    """Of ``given``, which ``start`` holds, for ``network``. Raises CheckpointError where they differ."""
    if given.vocabulary.words != network.vocabulary.words or not _alike(given.config, network.config):
        raise CheckpointError(f"{start} has another vocabulary or config than this run; start without it.")
    weights: dict[str, torch.Tensor] = given.state_dict()
    return weights


def _alike(one: Any, other: Any) -> bool:
    """Whether two configs differ in their streams' names at most."""
    if type(one) is not type(other) or len(one.streams) != len(other.streams):
        return False
    names = {a.name: b.name for a, b in zip(one.streams, other.streams, strict=True)}
    return bool(rename_streams(one, names) == other)


def prepare_training(
    recipe: Recipe, inputs: PictureInputs, data: Path, cache: Path, run: TrainingRun
) -> tuple[Trainer, CardWriter]:
    """The recipe on the pictures below ``data``; what is best is kept in the run's folder, with its card.

    The words are those that people wrote of all pictures, whichever of them the recipe trains on. Raises
    FileNotFoundError where ``data`` holds no set, or none of the recipe's.
    """
    every, held_out = inputs.items(data, cache, recipe.held_out)
    captions = (caption for item in every if not item.id.startswith(WRITTEN) for caption in item.captions)
    vocabulary = Vocabulary.from_captions(captions, size=recipe.vocabulary_size)
    kept = [item for item in every if item.id.startswith(recipe.ids)]
    if recipe.ids and not kept:
        raise FileNotFoundError(f"{data} lacks {recipe.ids.rstrip('/')}, which {recipe.name} trains on")
    cards = CardWriter(recipe, tuple(item.id for item in kept), inputs, time.monotonic())
    precision = training_precision()
    batches = Batches(
        items=kept,
        vocabulary=vocabulary,
        videos=recipe.videos,
        captions=recipe.captions,
        max_length=recipe.max_length,
        shots=Shots(recipe.lengths, recipe.distractors),
        seed=recipe.seed,
        dtype=precision,
    )
    return Trainer(recipe, batches, held_out, run, cards.saver(run, WHOLE_PICTURES), precision), cards


@dataclass(frozen=True, eq=False)
class CardWriter:
    """What the checkpoints of a run say of it. ids: of the items trained on; started: of this session."""

    recipe: Recipe
    ids: tuple[str, ...]
    inputs: PictureInputs
    started: float

    def saver(
        self, run: TrainingRun, judged_on: str, metric: str = "cider"
    ) -> Callable[[Any, float, str], None]:
        """Writes a network, its score and where in the run it was reached as the run's best."""

        def save(network: Any, score: float, where: str) -> None:
            save_checkpoint(run.best, network, self.card(network.name, judged_on, score, where, metric))

        return save

    def card(self, name: str, judged_on: str, score: float, where: str, metric: str = "cider") -> Card:
        """Of the network of that name as it was at that place of the run."""
        scores = {judged_on: {metric: round(score, 2), "n": self.recipe.held_out}}
        return Card(name, self.inputs.specs, scores, self._training(where))

    def _training(self, where: str) -> dict[str, Any]:
        return {
            "recipe": self.recipe.model_dump(),
            "streams": self.inputs.streams.name,
            "chosen_at": where,
            "hours_this_session": round((time.monotonic() - self.started) / 3600, 2),
            "ids": list(self.ids),
        }
