"""A row's training: the demo's trainer under the ablations' recipe, without a choice among checkpoints.

What is judged are the averaged weights after the last step, never the best of several by validation, so
that rows differ by what they are and not by when they were stopped. Refocus with both passes has its own
two phases, a quarter of the steps for the first caption alone and the others for both (eq. 22).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from extractors.errors import ReelwordError
from models.captioner import AnyCaptioner
from models.checkpoint import Card, load_checkpoint, save_checkpoint
from training.ablations.data import Corpus, OutOfTime
from training.ablations.results import AblationPlan
from training.ablations.row import RECIPE, AblationJob, Trained
from training.ablations.word_weights import begin_with
from training.optimization.refocus_phases import Refocusing
from training.optimization.run_folder import TrainingRun
from training.optimization.trainer import Trainer
from training.recipes.recipe import Recipe

#: Held-out pictures that the trainer's own validation looks at; it chooses nothing here.
WATCHED = 4
#: A run that is killed, or out of time, loses at most this part of its steps.
SAVES = 8


class TooLittleTime(ReelwordError, ValueError):
    """A row's minutes ended before its first saved state; the message says what to do."""

    code = "too_little_time"
    hint = "Give each row more minutes: --minutes."


@dataclass(frozen=True, eq=False)
class Learned:
    """steps of ``planned`` were taken, in ``seconds`` of this process."""

    captioner: AnyCaptioner
    steps: int
    planned: int
    seconds: float


def checkpoint_in(folder: Path) -> Path:
    """Where a row's run leaves its weights."""
    return folder / "final.safetensors"


def recipe_for(job: AblationJob, plan: AblationPlan) -> Recipe:
    """Steps are the family's or the plan's; a short run warms up and saves sooner."""
    steps = plan.steps or job.family.steps
    update = {
        "steps": steps,
        "seed": job.seed,
        "warmup": min(RECIPE.warmup, max(1, steps // 8)),
        "validate_every": max(1, steps // SAVES),
        "first_step_steps": steps // 4,
        "combined_steps": steps - steps // 4,
        "soft_weight": 0.5 if plan.teachers else 0.0,
    }
    own = job.row.make.recipe if isinstance(job.row.make, Trained) else {}
    return RECIPE.model_copy(update={**update, **own})


def learned(
    job: AblationJob,
    corpus: Corpus,
    plan: AblationPlan,
    folder: Path,
    minutes: float,
    words: Mapping[str, Tensor],
) -> Learned:
    """Trains, or goes on training, or finds what was trained.

    words: parameters to begin with (word_weights.py). Raises TooLittleTime.
    """
    path = checkpoint_in(folder)
    if not path.exists():
        _train(job, corpus, recipe_for(job, plan), folder, minutes, words)
    checkpoint = load_checkpoint(path)
    reported = checkpoint.card.training
    return Learned(checkpoint.captioner, reported["steps"], reported["planned"], reported["seconds"])


def untrained(make: Trained, corpus: Corpus, seed: int, words: Mapping[str, Tensor]) -> AnyCaptioner:
    """Random but for the words."""
    torch.manual_seed(seed)
    built = make.captioner_of(corpus.vocabulary)
    begin_with(built, words)
    return built


def _train(
    job: AblationJob,
    corpus: Corpus,
    recipe: Recipe,
    folder: Path,
    minutes: float,
    words: Mapping[str, Tensor],
) -> None:
    assert isinstance(job.row.make, Trained)
    started, run = time.monotonic(), TrainingRun(folder)
    batches = corpus.batches(recipe, started + 60 * minutes, job.family.videos)
    watched = corpus.held_out[:WATCHED]
    captioner = untrained(job.row.make, corpus, job.seed, words)
    with suppress(OutOfTime):
        _take_steps(Trainer(recipe, batches, watched, run, _choose_none, corpus.precision), captioner)
    state = run.load()
    taken = 0 if state is None else _taken(state, recipe)
    if state is None or not taken:
        raise TooLittleTime(f"{job.name} saved nothing in {minutes:g} minutes: give more --minutes")
    weights = {name.removeprefix("module."): value for name, value in state["average"].items()}
    weights.pop("n_averaged")
    captioner.load_state_dict(weights)
    reported = {"steps": taken, "planned": recipe.steps, "seconds": round(time.monotonic() - started, 1)}
    specs = {name: corpus.specs[name] for name in (stream.name for stream in captioner.inputs)}
    ids = [item.id for item in batches.items]
    training = {"recipe": recipe.model_dump(), "streams": corpus.streams, "ids": ids, **reported}
    save_checkpoint(checkpoint_in(folder), captioner, Card(captioner.name, specs, {}, training))
    (folder / "last.pt").unlink()


def _take_steps(trainer: Trainer, captioner: AnyCaptioner) -> None:
    if captioner.training_phases:
        refocusing = Refocusing(trainer, trainer)
        refocusing.first_step(captioner)
        refocusing.combined(captioner)
    else:
        trainer.train(captioner)


def _taken(state: Mapping[str, Any], recipe: Recipe) -> int:
    """Steps of a run's state, over its phases."""
    before = recipe.first_step_steps if state["phase"] == "combined" else 0
    return before + int(state["step"])


def _choose_none(captioner: AnyCaptioner, score: float, where: str) -> None:
    """In the place of keeping the best."""
    del captioner, score, where
