"""What the commands do: join recipe, data and captioner for a run, or checkpoint and data for a table."""

from __future__ import annotations

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
from models.semantic_embedding import SemanticEmbedding, SemanticEmbeddingConfig
from models.service import load_captioner
from models.stream_sets import DEMO, StreamSet
from models.vocabulary import Vocabulary
from training.dataset import Batches, Captioned, Describer, hold_out, load_training_sets
from training.embedding import train_embedding
from training.feature_cache import VIEWS
from training.later_phases import train_later_phases
from training.loop import Trainer
from training.precision import training_precision
from training.pseudo_video import Shots
from training.recipes import DEMO_CONFIGS, Recipe
from training.run import Run
from training.soft_targets import Reading, SoftTargets, soft_targets, together

SELECTION_SET = "flickr8k/"
#: The same for every run, so that no run trains on what another is chosen by.
SELECTION_SEED = 2020
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
    ``data`` holds no set, NeedsVideo for streams that pictures do not have.
    """
    torch.set_num_threads(threads)
    config: Any = DEMO_CONFIGS[name]()
    meal = Meal.of(streams, [stream.name for stream in config.streams])
    kept, held_out = meal.items(data, cache, recipe.held_out)
    run = Run(out)
    cards = Cards(recipe, tuple(item.id for item in kept), meal, time.monotonic())
    trainer = _trainer(recipe, kept, held_out, run, cards)
    if recipe.corpus is not None:
        trainer = replace(trainer, batches=trainer.batches.some(recipe.corpus))
    if teachers:
        soft = learned_from(teachers, trainer.batches, cache)
        trainer = replace(trainer, batches=replace(trainer.batches, soft=soft))
    torch.manual_seed(recipe.seed)
    captioner = captioner_class(name)(config, trainer.batches.vocabulary)
    if start is not None:
        captioner.load_state_dict(weights_to_start_from(start, captioner))
    train_only(captioner, recipe.only)

    def partly(phase: str) -> Captioner[Any, Any]:
        after = run.best_after(phase)
        train_only(after, recipe.only)
        return after

    trainer.train(captioner)
    on_shots = replace(trainer, save_best=cards.saver(run, AMONG_SHOTS))
    train_later_phases(captioner, trainer, on_shots, partly)
    return run.best


def train_semantic_embedding(recipe: Recipe, data: Path, out: Path, cache: Path, threads: int) -> Path:
    """The embedding that picks among captions, on the demo's streams; returns the best checkpoint's path.

    Raises FileNotFoundError where ``data`` holds no set.
    """
    torch.set_num_threads(threads)
    config = SemanticEmbeddingConfig.demo()
    meal = Meal.of(DEMO, [stream.name for stream in config.streams])
    kept, held_out = meal.items(data, cache, recipe.held_out)
    run = Run(out)
    cards = Cards(recipe, tuple(item.id for item in kept), meal, time.monotonic())
    trainer = _trainer(recipe, kept, held_out, run, cards)
    trainer = replace(trainer, save_best=cards.saver(run, WHOLE_PICTURES, metric="recall"))
    torch.manual_seed(recipe.seed)
    train_embedding(trainer, SemanticEmbedding(config, trainer.batches.vocabulary))
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

    def items(self, data: Path, cache: Path, held_out: int) -> tuple[list[Captioned], list[Captioned]]:
        """(training, held out) of every set below ``data``. Raises FileNotFoundError where there is none."""
        every = load_training_sets(self.describers, data, cache)
        return hold_out(every, held_out, SELECTION_SET, SELECTION_SEED)

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


def learned_from(teachers: Sequence[str], batches: Batches, cache: Path) -> SoftTargets:
    """What the teachers would write in each place of the captions of ``batches``, on average.

    Raises CheckpointError where one's words are others than this run's.
    """
    encoded = [
        (item.id, item.pictures, [batches.vocabulary.encode(caption) for caption in item.captions])
        for item in batches.items
    ]
    reading = Reading(encoded, batches.max_length)

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
    cards: Cards,
) -> Trainer:
    captions = (caption for item in kept for caption in item.captions)
    vocabulary = Vocabulary.from_captions(captions, size=recipe.vocabulary_size)
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
    return Trainer(recipe, batches, held_out, run, cards.saver(run, WHOLE_PICTURES), precision)


@dataclass(frozen=True, eq=False)
class Cards:
    """What the checkpoints of a run say of it. ids: of the items trained on; started: of this session."""

    recipe: Recipe
    ids: tuple[str, ...]
    meal: Meal
    started: float

    def saver(self, run: Run, judged_on: str, metric: str = "cider") -> Callable[[Any, float, str], None]:
        """Writes a network, its score and where in the run it was reached as the run's best."""

        def save(network: Any, score: float, where: str) -> None:
            scores = {judged_on: {metric: round(score, 2), "n": self.recipe.held_out}}
            card = Card(network.name, self.meal.specs, scores, self._training(where))
            save_checkpoint(run.best, network, card)

        return save

    def _training(self, where: str) -> dict[str, Any]:
        return {
            "recipe": self.recipe.model_dump(),
            "streams": self.meal.streams.name,
            "chosen_at": where,
            "hours_this_session": round((time.monotonic() - self.started) / 3600, 2),
            "ids": list(self.ids),
        }
