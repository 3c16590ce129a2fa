"""Measures every captioner at its paper's widths: captions a second, and a training step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from benchmarks.gpu.fed_training import load_batches
from benchmarks.gpu.measuring import DTYPES, Measuring
from benchmarks.support.paper_batches import PaperBatch, with_videos
from benchmarks.support.rows import Row
from extractors.engines.engine import Precision
from models.decoding.decode import DecodingOptions, decode
from training.batches.forcing_plan import plan_forcing
from training.batches.loading import move_to
from training.batches.training_batch import TrainingBatch
from training.optimization.learner import build_learner
from training.optimization.losses import supervised_loss
from training.precision import autocast

#: Videos that are captioned together.
VIDEOS = 64
#: Of a pass of the loop with its loader: more than it has made ahead when the pass begins.
FED_STEPS = 12
BOTH: tuple[Precision, ...] = ("fp32", "bf16")
OPTIONS = DecodingOptions(beam_size=5, max_length=20, attention=False)


def measure_captions(name: str, recipe: str, measuring: Measuring) -> Iterator[Row]:
    """Yields captions a second of one captioner, in bf16 beside fp32.

    Args:
        name: of the captioner.
        recipe: its paper's.
        measuring: on which device, how often.
    """
    paper = PaperBatch.make(name, recipe, measuring.quick)
    paper = paper if measuring.quick else with_videos(paper, VIDEOS)
    captioner = paper.captioner.to(measuring.device).eval()
    inputs = move_to(paper.batch, measuring.device).inputs_of(captioner)

    def write(precision: Precision) -> None:
        with torch.inference_mode(), autocast(DTYPES[precision], measuring.device):
            decode(captioner, captioner.encode_batches(inputs), OPTIONS)

    videos = inputs[0].size
    fp32, bf16 = (videos / measuring.seconds(partial(write, each)) for each in BOTH)
    note = ", ".join(filter(None, (f"{videos} videos together, beam 5", measuring.memory())))
    yield Row("gpu", f"{name} captions fp32", fp32, "captions/s", better="more", note=note)
    yield Row("gpu", f"{name} captions bf16", bf16, "captions/s", fp32, "fp32", "more", note=note)


def measure_training(name: str, recipe: str, measuring: Measuring) -> Iterator[Row]:
    """Yields the seconds of a supervised step of one captioner, in bf16 beside fp32, and fed by its loader.

    A step of its own has its batch at hand; beside it stands the same step of a loop that waits for batches
    made of files. The difference is what the loader costs.

    Args:
        name: of the captioner.
        recipe: its paper's.
        measuring: on which device, how often.
    """
    paper = PaperBatch.make(name, recipe, measuring.quick)
    taken: dict[Precision, float] = {}
    for precision in BOTH:
        step = TrainingStep(paper, measuring.device, precision)
        taken[precision] = measuring.seconds(step.take)
        operations = measuring.count_operations(step.take)
        share = measuring.share_of_peak(operations, taken[precision], precision)
        note = ", ".join(filter(None, (f"{len(paper.batch.ids)} videos", share, measuring.memory())))
        peer, peer_name = (None, "") if precision == "fp32" else (taken["fp32"], "fp32")
        yield Row("gpu", f"{name} step {precision}", taken[precision], "s", peer, peer_name, note=note)
    with TemporaryDirectory() as folder, load_batches(paper, measuring.device, Path(folder)) as batches:
        count = 1 if measuring.quick else FED_STEPS
        seconds = measuring.seconds(lambda: step.take_several(batches, count)) / count
    note = f"{len(paper.batch.ids)} videos a step from files, {count} steps a pass"
    yield Row("gpu", f"{name} loop bf16", seconds, "s", taken["bf16"], "the step alone", note=note)


class TrainingStep:
    """Takes the supervised step of a paper's batch again and again: loss, gradients, optimiser.

    Args:
        made: the captioner and its batch.
        device: where the step is taken.
        precision: in which losses are computed.
    """

    def __init__(self, made: PaperBatch, device: torch.device, precision: Precision) -> None:
        self._captioner = made.captioner.to(device).train()
        plan = plan_forcing(made.batch.targets, len(made.batch.ids))
        self._recipe, self._batch = made.recipe, move_to(replace(made.batch, plan=plan), device)
        self._device, self._dtype = device, DTYPES[precision]
        self._learner = build_learner(made.recipe, self._captioner, self._dtype)

    def take_several(self, batches: Iterator[TrainingBatch], count: int) -> None:
        """Takes ``count`` steps, each with the next batch."""
        for batch in islice(batches, count):
            self.take(batch)

    def take(self, batch: TrainingBatch | None = None) -> None:
        """Takes one step. batch: on the device; by default the paper's."""
        batch = batch or self._batch
        with autocast(self._dtype, self._device):
            memory = self._captioner.encode_batches(batch.inputs_of(self._captioner))
            forcing, generator = self._recipe.teacher_forcing(0), torch.Generator(self._device)
            losses = supervised_loss(
                self._captioner, memory, batch, self._recipe, forcing, generator.manual_seed(0)
            )
        self._learner.add_gradient(losses["total"])
        self._learner.descend(1e-5, self._recipe.clip)
