"""A tiny run of training on drawn shapes, with a teacher; as a process it kills itself, as the kernel would.

Arguments: the corpus's folder, the run's folder, and the step whose batch is never tiny.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from lab.pictures.picture_batches import PictureBatches, TrainingItem, hold_out
from lab.pictures.pseudo_video import Shots
from lab.pictures.teacher_targets import SoftTargets, TeacherReading, load_soft_targets
from lab.pictures.validation import PictureValidation
from models.captioners.stats.config import STaTSConfig, StreamConfig
from models.captioners.stats.network import STaTS
from models.vocabulary import Vocabulary
from tests.training.tiny_corpus import captioned
from training.batches.training_batch import TrainingBatch
from training.optimization import trainer as optimization_trainer
from training.optimization.learner import TrainedNetwork
from training.optimization.progress import BestScore
from training.optimization.run_folder import TrainingRun
from training.optimization.self_critical import SelfCritical
from training.optimization.trainer import Trainer
from training.recipes.demo_recipes import DEMO
from training.recipes.recipe import Recipe

STEPS, SAVED_EVERY = 30, 10
RECIPE = DEMO.model_copy(
    update={
        "videos": 6,
        "captions": 2,
        "max_length": 8,
        "steps": STEPS,
        "learning_rate": 1e-2,
        "warmup": 6,
        "average_decay": 0.9,
        "soft_weight": 0.1,
        "validate_every": SAVED_EVERY,
        "held_out": 4,
        "self_critical_steps": 10,
        "self_critical_every": 5,
        "self_critical_samples": 3,
        "self_critical_captions": 1,
    }
)


@dataclass(frozen=True, eq=False)
class MortalBatches(PictureBatches):
    """The process ends where batch ``last`` is asked for."""

    last: int = -1

    def at(self, step: int) -> TrainingBatch:
        if step == self.last:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().at(step)


def shapes(folder: Path) -> list[TrainingItem]:
    return captioned(folder, 24)


def teacher_of(items: Sequence[TrainingItem], folder: Path) -> SoftTargets:
    """What a captioner that has learned nothing would have written."""
    vocabulary = Vocabulary.from_captions(caption for item in items for caption in item.captions)
    encoded = [(item.id, item.pictures, [vocabulary.encode(c) for c in item.captions]) for item in items]
    reading = TeacherReading(encoded, RECIPE.max_length)
    return load_soft_targets(stats(vocabulary, seed=7), "0" * 64, reading, folder / "cache", torch.float32)


def trainer(folder: Path, out: Path, last: int = -1, recipe: Recipe = RECIPE) -> Trainer:
    kept, held_out = hold_out(shapes(folder), recipe.held_out, "shapes/", recipe.seed)
    batches = MortalBatches(
        items=kept,
        vocabulary=Vocabulary.from_captions(caption for item in kept for caption in item.captions),
        videos=recipe.videos,
        captions=recipe.captions,
        max_length=recipe.max_length,
        shots=Shots(recipe.lengths),
        seed=recipe.seed,
        dtype=torch.float32,
        last=last,
        soft=teacher_of(kept, folder),
    )

    def save(network: TrainedNetwork, best: BestScore) -> None:
        pass

    whole, shots = (PictureValidation(held_out, recipe.search, each) for each in (None, batches.shots))
    return Trainer(recipe, batches, whole, TrainingRun(out), save, torch.float32, shots)


def captioner(tiny: Trainer) -> STaTS:
    return stats(tiny.batches.vocabulary, tiny.recipe.seed)


def stats(vocabulary: Vocabulary, seed: int) -> STaTS:
    config = STaTSConfig(
        streams=(StreamConfig(name="grid", width=8),),
        embedded=16,
        words=16,
        attention=8,
        hidden=24,
        query=16,
        dropout=0.1,
        tie_words=True,
    )
    torch.manual_seed(seed)
    return STaTS(config, vocabulary)


def refine(tiny: Trainer, refined: STaTS) -> None:
    words = tiny.batches.vocabulary.words
    tiny.refine(refined, SelfCritical.for_items(tiny.recipe, tiny.batches.items, words))


if __name__ == "__main__":
    torch.set_num_threads(1)
    optimization_trainer.REPORT_EVERY = 1
    mortal = trainer(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
    mortal.train(captioner(mortal))
