"""Runs a row: trains its captioner as ``train`` does, or reads one that is there, and scores its captions.

All rows see the same pictures. Of the held-out ones a few choose among a run's weights, and the others judge
them: as stills, and each as a shot of a pseudo-video (lab/pictures/pseudo_video.py) between shots of
other held-out pictures, on which what looks along time can show.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict

from extractors.errors import ReelwordError
from extractors.files import atomic_write
from lab.ablations.rows import AblationJob, EvalSet
from lab.pictures.picture_inputs import PictureInputs, list_streams
from lab.pictures.pseudo_video import Shots
from lab.pictures.session import PictureTraining
from lab.pictures.validation import PictureValidation
from models.captioner import Captioner
from models.captioners.registry import UnknownStreamSet, find_captioner, find_stream_set
from models.checkpoint import WEIGHTS, load_checkpoint, read_card
from models.decoding.options import DecodingOptions
from models.feature_sources.stream_checks import StreamMismatch, select_stream_set
from training.optimization.phases import train_later_phases
from training.optimization.run_folder import RunSettings
from training.optimization.validation import keep_memory
from training.precision import training_precision
from training.recipes.demo_recipes import DEMO
from training.recipes.recipe import Recipe

#: Small batches, of which a few hundred fit into minutes; half of them stills, the others of 4 or 6 steps.
RECIPE = DEMO.model_copy(
    update={
        "name": "ablation",
        "videos": 16,
        "captions": 5,
        "steps": 300,
        "learning_rate": 1.5e-3,
        "average_decay": 0.99,
        "lengths": (0.5, 0.0, 0.0, 0.25, 0.0, 0.25),
        "self_critical_steps": 0,
    }
)
#: Held-out pictures that choose among a run's weights.
CHOOSING = 64
#: How captions that are judged are searched.
OPTIONS = DecodingOptions(beam_size=3, length_penalty=0.5, max_length=17, name_once=False, attention=False)
#: How pictures are shown that are judged; None for stills.
SHOWN: Mapping[EvalSet, Shots | None] = {
    "stills": None,
    "shots": Shots(lengths=(0.0, 0.0, 0.0, 0.0, 0.0, 1.0), distractors=1.0),
}


class NotThere(ReelwordError, ValueError):
    """What a row reads is not there, or does not fit the pictures; the message says which."""

    code = "row_lacks_input"
    hint = "Train or bring what the message names, then run the row again."


class RowResult(BaseModel):
    """Holds a row's scores with one seed."""

    model_config = ConfigDict(frozen=True)

    seed: int
    #: That were taken; None for a row that is only read.
    steps: int | None
    parameters: int
    seconds: float
    #: CIDEr-D × 100 of each judged picture, always in the same order.
    scores: Mapping[EvalSet, tuple[float, ...]]


@dataclass(frozen=True, eq=False)
class AblationRunner:
    """Runs jobs, each once: a finished one is a JSON file in the settings' folder."""

    data: Path  #: with archives and captions
    settings: RunSettings
    steps: int  #: of every row that is trained
    judged: int  #: pictures by which rows are judged
    weights: Path = WEIGHTS  #: the shipped captioners

    def run(self, job: AblationJob) -> RowResult:
        """Trains or reads a row, scores it, and keeps the result. Raises NotThere, FileNotFoundError."""
        began = time.monotonic()
        recipe = build_recipe(job, self.steps) if job.row.trains else None
        captioner, inputs = self._read(job) if recipe is None else self._train(job, recipe)
        _, held_out = inputs.items(self.data, self.settings.cache, RECIPE.held_out)
        choose: Any = keep_memory
        if job.row.first_step:
            choose = next(spec.judge_memory for spec in captioner.phases if spec.name == "first_step")
        precision = training_precision(self.settings.device)
        scores = {}
        for name in job.row.eval_sets:
            judged = PictureValidation(held_out[CHOOSING:][: self.judged], OPTIONS, SHOWN[name])
            ciders = judged.judge(captioner, precision, choose).ciders
            scores[name] = tuple(np.asarray(ciders).round(4).tolist())
        result = RowResult(
            seed=job.seed,
            steps=None if recipe is None else self.steps,
            parameters=sum(each.numel() for each in captioner.parameters()),
            seconds=round(time.monotonic() - began, 1),
            scores=scores,
        )
        with atomic_write(locate_result(self.settings.out, job)) as unfinished:
            unfinished.write_text(result.model_dump_json())
        return result

    def _train(self, job: AblationJob, recipe: Recipe) -> tuple[Captioner, PictureInputs]:
        """Trains a captioner, or continues to train it, to the best of its weights."""
        registered = find_captioner(job.row.trains)
        demo = registered.make_demo_config()
        config = type(demo).model_validate({**dict(demo), **job.row.changes})
        names = [stream.name for stream in list_streams(config)]
        inputs = PictureInputs.build(find_stream_set(job.family.streams), names, device=self.settings.device)
        settings = replace(self.settings, out=self.settings.out / job.name)
        training = PictureTraining.prepare(recipe, inputs, self.data, settings)
        training = replace(training, held_out=training.held_out[:CHOOSING])
        torch.manual_seed(job.seed)
        captioner = registered.kind(config, training.batches.vocabulary).to(settings.device)
        trainer = training.make_trainer()
        trainer.train(captioner)
        train_later_phases(captioner, trainer, training.run.best_after)
        return load_checkpoint(training.run.best, settings.device).captioner, inputs

    def _read(self, job: AblationJob) -> tuple[Captioner, PictureInputs]:
        """Loads a shipped captioner, or that of a trained row."""
        path = self.settings.out / f"{job.row.reads}-{job.seed}" / "best.safetensors"
        if job.row.shipped:
            path = self.weights / f"{job.row.reads}.safetensors"
        if not path.exists():
            raise NotThere(f"it reads {path}, which is not there")
        card, device = read_card(path), self.settings.device
        try:
            inputs = PictureInputs.build(select_stream_set(card), list(card.streams), device=device)
            inputs.check_streams(card)
        except (StreamMismatch, UnknownStreamSet) as error:
            raise NotThere(f"{path} cannot be fed: {error}") from error
        captioner: Captioner = load_checkpoint(path, device).captioner.with_config(job.row.changes)
        return captioner.to(device), inputs


def build_recipe(job: AblationJob, steps: int) -> Recipe:
    """Builds a row's recipe; a short run warms up and saves sooner."""
    phases = {name: round(share * steps) for name, share in job.row.phases.items()}
    update = {
        "steps": steps - sum(phases.values()),
        "phases": phases,
        "seed": job.seed,
        "corpus": job.family.videos,
        "warmup": min(RECIPE.warmup, max(1, steps // 8)),
        "validate_every": max(1, steps // 4),
    }
    return RECIPE.model_copy(update={**update, **job.row.recipe})


def locate_result(folder: Path, job: AblationJob) -> Path:
    """Returns the file of a finished job's result."""
    return folder / f"{job.name}.json"


def load_results(folder: Path, jobs: Sequence[AblationJob]) -> dict[str, list[RowResult]]:
    """Reads the results that are there: row → one a seed."""
    results: dict[str, list[RowResult]] = {}
    for job in jobs:
        path = locate_result(folder, job)
        if path.exists():
            result = RowResult.model_validate_json(path.read_text(encoding="utf-8"))
            results.setdefault(job.row.name, []).append(result)
    return results
