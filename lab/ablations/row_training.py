"""Trains a row: by the demo's trainer under the ablations' recipe, without a choice among checkpoints.

What is judged are the averaged weights after the last step, never the best of several by validation, so
that rows differ by what they are and not by when they were stopped. Refocus with both passes has its own
two phases, a quarter of the steps for the first caption alone and the others for both (eq. 22).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from lab.ablations.corpus import AblationCorpus
from lab.ablations.results import AblationPlan
from lab.ablations.row import RECIPE, AblationJob, TrainingSpec
from lab.ablations.word_weights import copy_words
from models.captioner import AnyCaptioner
from models.checkpoint import Card, load_checkpoint, save_checkpoint
from training.optimization.learner import TrainedNetwork
from training.optimization.phases import go_through
from training.optimization.run_folder import TrainingRun
from training.optimization.trainer import BestScore, Trainer
from training.optimization.validation import PictureValidation
from training.recipes.recipe import Recipe

#: Held-out pictures that the trainer's own validation looks at; it chooses nothing here.
WATCHED = 4
#: A run that is killed loses at most this part of its steps.
SAVES = 8


@dataclass(frozen=True, eq=False)
class TrainedRow:
    """A trained captioner, whose ``steps`` took ``seconds`` of this process."""

    captioner: AnyCaptioner
    steps: int
    seconds: float


def locate_checkpoint(folder: Path) -> Path:
    """Returns where a row's run leaves its weights."""
    return folder / "final.safetensors"


def build_recipe(job: AblationJob, plan: AblationPlan) -> Recipe:
    """Builds a row's recipe: steps are the family's or the plan's; a short run warms up and saves sooner."""
    steps = plan.steps or job.family.steps
    update = {
        "steps": steps,
        "seed": job.seed,
        "warmup": min(RECIPE.warmup, max(1, steps // 8)),
        "validate_every": max(1, steps // SAVES),
        "phases": {"first_step": steps // 4, "combined": steps - steps // 4},
        "soft_weight": 0.5 if plan.teachers else 0.0,
    }
    changes = job.row.make.recipe if isinstance(job.row.make, TrainingSpec) else {}
    return RECIPE.model_copy(update={**update, **changes})


def train_row(
    job: AblationJob,
    corpus: AblationCorpus,
    plan: AblationPlan,
    folder: Path,
    words: Mapping[str, Tensor],
) -> TrainedRow:
    """Trains a row, or goes on training it, or loads what was trained.

    Args:
        job: the row and its seed.
        corpus: pictures of the row's streams.
        plan: what all rows have alike.
        folder: the row's.
        words: parameters to begin with (word_weights.py).
    """
    path = locate_checkpoint(folder)
    if not path.exists():
        _train(job, corpus, build_recipe(job, plan), folder, words)
    checkpoint = load_checkpoint(path, corpus.device)
    reported = checkpoint.card.training
    return TrainedRow(checkpoint.captioner, reported["steps"], reported["seconds"])


def build_captioner(
    make: TrainingSpec, corpus: AblationCorpus, seed: int, words: Mapping[str, Tensor]
) -> AnyCaptioner:
    """Builds a captioner of random weights but for the words.

    Args:
        make: which captioner, with which changes of its config.
        corpus: whose vocabulary it has.
        seed: of the random weights.
        words: parameters that are copied into it (word_weights.py).
    """
    torch.manual_seed(seed)
    built = make.build(corpus.vocabulary)
    copy_words(built, words)
    return built.to(corpus.device)


def _train(
    job: AblationJob,
    corpus: AblationCorpus,
    recipe: Recipe,
    folder: Path,
    words: Mapping[str, Tensor],
) -> None:
    assert isinstance(job.row.make, TrainingSpec)
    started, run = time.monotonic(), TrainingRun(folder, corpus.device)
    batches = corpus.make_batches(recipe, job.family.videos)
    watched = PictureValidation(corpus.held_out[:WATCHED], recipe.search)
    captioner = build_captioner(job.row.make, corpus, job.seed, words)
    _take_steps(Trainer(recipe, batches, watched, run, _keep_none, corpus.precision), captioner)
    state = run.load()
    assert state is not None
    weights = {name.removeprefix("module."): value for name, value in state["average"].items()}
    weights.pop("n_averaged")
    captioner.load_state_dict(weights)
    reported = {"steps": recipe.steps, "seconds": round(time.monotonic() - started, 1)}
    specs = {name: corpus.specs[name] for name in (stream.name for stream in captioner.inputs)}
    ids = [item.id for item in batches.items]
    training = {"recipe": recipe.model_dump(), "streams": corpus.streams, "ids": ids, **reported}
    save_checkpoint(locate_checkpoint(folder), captioner, Card(captioner.name, specs, {}, training))
    (folder / "last.pt").unlink()


def _take_steps(trainer: Trainer, captioner: AnyCaptioner) -> None:
    phases = [spec for spec in captioner.phases if spec.name in trainer.recipe.phases]
    for spec in phases:
        go_through(spec, trainer, captioner)
    if not phases:
        trainer.train(captioner)


def _keep_none(captioner: TrainedNetwork, best: BestScore) -> None:
    """Stands in the place of keeping the best."""
    del captioner, best
