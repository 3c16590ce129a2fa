"""Trains captioners and the semantic embedding on pictures: joins recipe, data and captioner for a run."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from pydantic import BaseModel
from torch import nn

from extractors.files import sha256_of
from lab.pictures.embedding import train_embedding
from lab.pictures.picture_batches import WRITTEN, PictureBatches, TrainingItem, with_streams
from lab.pictures.picture_inputs import PictureInputs, fit_to_streams, list_streams, read_cards
from lab.pictures.pseudo_video import Shots
from lab.pictures.renamed_streams import holds_inputs, rename_streams
from lab.pictures.teacher_targets import (
    SoftTargets,
    TeacherReading,
    average_teachers,
    load_soft_targets,
)
from lab.pictures.validation import PictureValidation
from models.captioner import Captioner
from models.captioners.registry import find_captioner
from models.captioners.semantic_embedding import SemanticEmbedding, SemanticEmbeddingConfig
from models.checkpoint import (
    Card,
    CheckpointError,
    load_captioner,
    load_checkpoint,
    load_embedding,
    save_checkpoint,
)
from models.inputs import InputStream
from models.stream_set import DEMO, StreamSet
from models.vocabulary import Vocabulary
from training.optimization.learner import TrainedNetwork
from training.optimization.phases import train_later_phases
from training.optimization.processes import ALONE, Processes
from training.optimization.progress import BestScore
from training.optimization.run_folder import RunSettings, TrainingRun
from training.optimization.trainer import Trainer
from training.precision import CPU, set_precision
from training.recipes.changes import change_fields
from training.recipes.recipe import Recipe
from training.runs.run_record import RunDescription, TrainedData

#: Small, over the mean of the image net's cells.
DEMO_EMBEDDING_CONFIG = SemanticEmbeddingConfig(
    streams=(InputStream(name="grid", width=1280),), words=160, joint=320, dropout=0.1
)
#: What the held-out items were shown as, when a card's score was measured.
WHOLE_PICTURES, AMONG_SHOTS = "held-out training pictures", "held-out training pictures among other shots"
#: The metric by which a phase keeps weights → what a card calls the items, and the score.
CARD_SCORES = {
    "cider": (WHOLE_PICTURES, "cider"),
    "shots_cider": (AMONG_SHOTS, "cider"),
    "log_likelihood": (WHOLE_PICTURES, "log_likelihood"),
    "recall": (WHOLE_PICTURES, "recall"),
}


def train_captioner(
    name: str,
    recipe: Recipe,
    data: Path,
    settings: RunSettings,
    start: Path | None = None,
    streams: StreamSet = DEMO,
    teachers: Sequence[str] = (),
) -> Path:
    """Trains a captioner or goes on training it.

    Args:
        name: of the captioner.
        recipe: how it is trained.
        data: the folder with archives and captions.
        settings: the run's folder, the features' folder, threads.
        start: a checkpoint with weights to begin with.
        streams: what the captioner is fed with.
        teachers: captioners' names or checkpoints, whose mean probabilities are learned beside the captions.

    Returns:
        The best checkpoint's path.

    Raises:
        FileNotFoundError: ``data`` holds no set or lacks the recipe's.
        CheckpointError: start or a teacher is damaged, or of other words or widths than this run.
        StreamsDoNotFit: the captioner cannot read ``streams``.
        NeedsVideo, UnknownStream, StreamMismatch: as of ``PictureInputs.build``.
    """
    torch.set_num_threads(settings.threads)
    registered = find_captioner(name)
    config = change_fields(registered.fit(registered.make_demo_config(), streams), settings.config)
    names = [stream.name for stream in list_streams(config)]
    inputs = PictureInputs.build(streams, names, read_cards(teachers), settings.device)
    training = PictureTraining.prepare(recipe, inputs, data, settings, teachers)
    torch.manual_seed(recipe.seed)
    captioner = registered.kind(config, training.batches.vocabulary).to(settings.device)
    settings.open_run(training.describe(captioner, start, teachers))
    begun = None if start is None else load_checkpoint(start).captioner
    if start is not None and begun is not None:
        captioner.load_state_dict(match_weights(begun, captioner, start))

    def freeze(network: Captioner) -> Captioner:
        freeze_all_but(network, recipe.only)
        if begun is not None and recipe.keep_start:
            freeze_start(network, begun)
        return network

    def load_best_after(phase: str) -> Captioner:
        return freeze(training.run.best_after(phase))

    freeze(captioner)

    trainer = training.make_trainer()
    trainer.train(captioner)
    train_later_phases(captioner, trainer, load_best_after)
    return training.run.best


def train_semantic_embedding(
    recipe: Recipe,
    data: Path,
    settings: RunSettings,
    start: Path | None = None,
    streams: StreamSet = DEMO,
) -> Path:
    """Trains the embedding that picks among captions.

    Args:
        recipe: how it is trained.
        data: the folder with archives and captions.
        settings: the run's folder, the features' folder, threads.
        start: weights to begin with, which may have read another grid.
        streams: what the embedding is fed with.

    Returns:
        The best checkpoint's path.

    Raises:
        FileNotFoundError: ``data`` holds no set.
        CheckpointError: ``start`` is of other words or widths.
        NeedsVideo, UnknownStream, StreamMismatch: as of ``PictureInputs.build``.
    """
    torch.set_num_threads(settings.threads)
    config = change_fields(fit_to_streams(DEMO_EMBEDDING_CONFIG, streams), settings.config)
    inputs = PictureInputs.build(streams, [stream.name for stream in config.streams], (), settings.device)
    training = PictureTraining.prepare(recipe, inputs, data, settings)
    torch.manual_seed(recipe.seed)
    embedding = SemanticEmbedding(config, training.batches.vocabulary).to(settings.device)
    settings.open_run(training.describe(embedding, start))
    if start is not None:
        embedding.load_state_dict(match_weights(load_embedding(start)[0], embedding, start))
    train_embedding(training.make_trainer(), embedding)
    return training.run.best


@dataclass(frozen=True, eq=False)
class PictureTraining:
    """A recipe joined with its pictures and its folder.

    held_out: the items by which weights are chosen. checkpoints: writes the best weights. processes: that
    train together.
    """

    recipe: Recipe
    batches: PictureBatches
    held_out: Sequence[TrainingItem]
    run: TrainingRun
    checkpoints: CheckpointWriter
    processes: Processes = ALONE

    @classmethod
    def prepare(
        cls,
        recipe: Recipe,
        inputs: PictureInputs,
        data: Path,
        settings: RunSettings,
        teachers: Sequence[str] = (),
    ) -> PictureTraining:
        """Loads the recipe's pictures, their features, and the teachers' words.

        The words are those that people wrote of all pictures, whichever of them the recipe trains on. What
        teachers alone read of the items is left out once they have.

        Args:
            recipe: which pictures, how many a batch.
            inputs: the streams, and the networks that compute them.
            data: the folder with archives and captions.
            settings: the folders of the run and of features.
            teachers: captioners' names or checkpoints.

        Raises:
            FileNotFoundError: ``data`` holds no set, or none of the recipe's.
            CheckpointError: a teacher's words are others than this run's.
        """
        with settings.processes.first_alone():  # makes the features
            every, held_out = inputs.items(data, settings.cache, recipe.held_out)
        kept = [item for item in every if item.id.startswith(recipe.ids)]
        if recipe.ids and not kept:
            raise FileNotFoundError(f"{data} lacks {recipe.ids.rstrip('/')}, which {recipe.name} trains on")
        recipe = recipe.in_steps(sum(len(item.captions) for item in kept))
        batches = PictureBatches(
            items=kept,
            vocabulary=_collect_words(every, recipe.vocabulary_size),
            videos=recipe.videos,
            captions=recipe.captions,
            max_length=recipe.max_length,
            keep_end=recipe.keep_end,
            seed=recipe.seed,
            shots=Shots(recipe.lengths, recipe.distractors),
            dtype=set_precision(settings.precision, settings.device),
            motion=frozenset(each.stream for each in inputs.streams.inputs if each.kind == "motion"),
        )
        if recipe.corpus is not None:
            batches = batches.take_subset(recipe.corpus)
        with settings.processes.first_alone():
            device = settings.device
            soft = compute_teacher_targets(teachers, batches, settings.cache, device) if teachers else None
        batches = replace(batches, items=with_streams(batches.items, inputs.names), soft=soft)
        run = settings.make_run()
        checkpoints = CheckpointWriter(recipe, tuple(item.id for item in kept), inputs, run)
        shown = with_streams(held_out, inputs.names)
        return cls(recipe, batches, shown, run, checkpoints, settings.processes)

    def describe(
        self, network: TrainedNetwork, start: Path | None, teachers: Sequence[str] = ()
    ) -> RunDescription:
        """Describes the run, so that its folder takes no other."""
        return RunDescription.of(
            network,
            self.recipe,
            TrainedData.of("pictures", self.batches.items, self.held_out),
            self.checkpoints.inputs.streams.name,
            self.checkpoints.inputs.specs,
            start_sha256="" if start is None else sha256_of(start),
            teachers=tuple(teachers),
        )

    def make_trainer(self) -> Trainer:
        """Makes the trainer, which saves the best weights by ``checkpoints``."""
        items, options = self.held_out, self.recipe.search
        return Trainer(
            recipe=self.recipe,
            batches=self.batches,
            validation=PictureValidation(items, options),
            run=self.run,
            save_best=self.checkpoints.save,
            precision=self.batches.dtype,
            shots_validation=PictureValidation(items, options, self.batches.shots),
            processes=self.processes,
        )


def _collect_words(items: Sequence[TrainingItem], size: int) -> Vocabulary:
    """Returns the ``size`` commonest words that people wrote."""
    captions = (caption for item in items if not item.id.startswith(WRITTEN) for caption in item.captions)
    return Vocabulary.from_captions(captions, size=size)


def compute_teacher_targets(
    teachers: Sequence[str], batches: PictureBatches, cache: Path, device: torch.device = CPU
) -> SoftTargets:
    """Computes what the teachers would write in each place of the captions, on average.

    Args:
        teachers: captioners' names or checkpoints.
        batches: whose items and captions they read.
        cache: the folder where it is kept.
        device: on which they read.

    Raises:
        CheckpointError: a teacher's words are others than this run's.
    """
    encoded = [
        (item.id, item.pictures, [batches.vocabulary.encode(caption) for caption in item.captions])
        for item in batches.items
    ]
    reading = TeacherReading(encoded, batches.max_length)

    def read(teacher: str) -> SoftTargets:
        checkpoint = load_captioner(teacher, device)
        if checkpoint.captioner.vocabulary.words != batches.vocabulary.words:
            raise CheckpointError(f"{teacher} has another vocabulary than this run; it cannot teach it.")
        return load_soft_targets(checkpoint.captioner, checkpoint.sha256, reading, cache, batches.dtype)

    return average_teachers([read(teacher) for teacher in teachers])


def freeze_all_but(captioner: nn.Module, part: str) -> None:
    """Freezes the parameters whose names lack ``part``. Raises ValueError where none has it."""
    for name, parameter in captioner.named_parameters():
        parameter.requires_grad_(part in name)
    if not any(parameter.requires_grad for parameter in captioner.parameters()):
        raise ValueError(f"no parameter of this captioner has {part!r} in its name")


def freeze_start(captioner: nn.Module, start: nn.Module) -> None:
    """Freezes what a captioner has of its start: whole parameters, and the first columns of wider ones."""
    before = start.state_dict()
    for name, parameter in captioner.named_parameters():
        shape = before[name].shape if name in before else ()
        if shape == parameter.shape:
            parameter.requires_grad_(False)
        elif shape and shape[1] < parameter.shape[1]:
            keep = partial(_drop_columns, shape[1])
            parameter.register_hook(keep)  # type: ignore[no-untyped-call]


def _drop_columns(count: int, gradient: torch.Tensor) -> torch.Tensor:
    """Returns a gradient with zeros for the first columns."""
    return F.pad(gradient[:, count:], (count, 0))


def match_weights(given: TrainedNetwork, network: TrainedNetwork, start: Path) -> dict[str, torch.Tensor]:
    """Returns one network's weights for another, which may read further streams.

    Where it reads more, matrices with more columns take the first from the start and zeros behind them, so
    that what is new says nothing yet; weights that the start lacks, or has for another width, stay as drawn.

    Args:
        given: has the weights.
        network: is to get them.
        start: the file of ``given``, for the error.

    Raises:
        CheckpointError: the two differ in words or widths.
    """
    further = _reads_further(given.config, network.config)
    if given.vocabulary.words != network.vocabulary.words or not (
        further or _alike(given.config, network.config)
    ):
        raise CheckpointError(f"{start} has another vocabulary or config than this run; start without it.")
    weights: dict[str, torch.Tensor] = given.state_dict()
    if not further:
        return weights
    return {name: _widen(weights.get(name), drawn) for name, drawn in network.state_dict().items()}


def _widen(weight: torch.Tensor | None, drawn: torch.Tensor) -> torch.Tensor:
    """Returns a weight with as many columns as the one that was drawn, the further ones zero; else that."""
    if weight is None or weight.shape[:1] != drawn.shape[:1] or weight.shape[1:] > drawn.shape[1:]:
        return drawn
    return F.pad(weight.to(drawn), (0, drawn.shape[1] - weight.shape[1])) if drawn.dim() == 2 else weight


def _reads_further(one: BaseModel, other: BaseModel) -> bool:
    """Returns whether a config reads more streams than another, and differs in nothing else."""
    if type(one) is not type(other) or len(list_streams(one)) >= len(list_streams(other)):
        return False
    pairs = [(a, b) for (_, a), (_, b) in zip(one, other, strict=True)]
    return all(a == b or holds_inputs(a) or holds_inputs(b) for a, b in pairs)


def _alike(one: BaseModel, other: BaseModel) -> bool:
    """Returns whether two configs differ in their streams' names at most."""
    ours, theirs = list_streams(one), list_streams(other)
    if type(one) is not type(other) or len(ours) != len(theirs):
        return False
    names = {a.name: b.name for a, b in zip(ours, theirs, strict=True)}
    return bool(rename_streams(one, names) == other)


@dataclass(frozen=True, eq=False)
class CheckpointWriter:
    """Writes the best weights of a run with their card.

    ids: of the items trained on. started: of this session, on ``time.monotonic``.
    """

    recipe: Recipe
    ids: tuple[str, ...]
    inputs: PictureInputs
    run: TrainingRun
    started: float = field(default_factory=time.monotonic)

    def save(self, network: TrainedNetwork, best: BestScore) -> None:
        """Writes a network as the run's best."""
        save_checkpoint(self.run.folder / best.file, network, self.make_card(network.name, best))

    def make_card(self, name: str, best: BestScore) -> Card:
        """Makes the card of the network of that name."""
        judged_on, metric = CARD_SCORES.get(best.metric, (WHOLE_PICTURES, best.metric))
        scores = {judged_on: {metric: round(best.value, 2), "n": self.recipe.held_out}}
        return Card(name, self.inputs.specs, scores, self._describe_training(best.where))

    def _describe_training(self, where: str) -> dict[str, Any]:
        return {
            "recipe": self.recipe.model_dump(),
            "streams": self.inputs.streams.name,
            "chosen_at": where,
            "hours_this_session": round((time.monotonic() - self.started) / 3600, 2),
            "ids": list(self.ids),
        }
