"""Times one training step of each captioner at its paper's widths, on clips of ten seconds.

    python -m benchmarks.support.paper_steps [--only stats,g2l] [--videos 32] [--device cpu]

Features are random numbers, as many rows as the paper's stream set makes of ten seconds at 25 frames a
second. A step is what training takes: encoding, teacher forcing over ten words, backward, clip, optimiser.
Each captioner has a process of its own, so that the memory is its own; seconds are of the processor. With
fewer ``--videos`` than the paper's 32 the note says by how much the step is to be multiplied.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from collections.abc import Sequence

import numpy as np
import torch
from pydantic import BaseModel

from benchmarks.support.rows import Row, add_options, cpu_seconds, tell
from extractors.features import Features, Stream, StreamSpec
from extractors.windows import Windows
from models.captioners.registry import captioner_class
from models.stream_set import StreamInput, StreamSet, find_stream_set
from models.vocabulary import Vocabulary, pad_captions
from training.batches.training_batch import TrainingBatch
from training.batches.video_batches import VideoInputs
from training.optimization.learner import build_learner
from training.optimization.losses import supervised_loss
from training.recipes.paper_recipes import find_paper_run

SECONDS, RATE, WORDS, CAPTION = 10.0, 25.0, 10_000, 10
SOUND_ROWS = 10
RECIPES = {
    "stats": "paper-msrvtt",
    "g2l": "paper-msrvtt",
    "refocus": "paper-msrvtt",
    "dual_afr": "paper-msrvtt",
    "vanilla": "paper-vatex",
    "temporal": "paper-vatex",
    "spatial": "paper-vatex",
}
SPEC = StreamSpec("random", "", "")


def count_rows(given: StreamInput, wanted: StreamSet) -> int:
    """Counts the rows that a stream has of ten seconds; boxes on a map have the map's."""
    if given.extractor.partition(":")[0] == "vggish":
        return SOUND_ROWS
    maker = given.extractor.removeprefix("roi:").partition("@")[0]
    windows = next(each.windows for each in wanted.inputs if each.extractor == maker)
    return len(windows.over(Windows()).cut(SECONDS, RATE))


def make_features(config: BaseModel, wanted: StreamSet, seed: int) -> Features:
    """Makes one clip's streams, as far as the captioner reads them.

    Args:
        config: of the captioner.
        wanted: the stream set that feeds it.
        seed: of the numbers.
    """
    generator = torch.Generator().manual_seed(seed)
    names = {each.name for each in config.streams}  # type: ignore[attr-defined]
    found = {}
    for given in (each for each in wanted.inputs if each.stream in names):
        rows = count_rows(given, wanted)
        shape = (rows, given.count, given.width) if given.count > 1 else (rows, given.width)
        start = np.arange(rows) * SECONDS / rows
        values = torch.rand(shape, generator=generator)
        found[given.stream] = Stream(values, start, start + SECONDS / rows, SPEC)
    return found


def measure_step(name: str, videos: int, device: str, steps: int) -> Row:
    """Takes a step to warm up and ``steps`` more, and returns the mean.

    Args:
        name: of the captioner.
        videos: of a batch, with a caption each.
        device: as torch names it.
        steps: that are timed.
    """
    run = find_paper_run(RECIPES[name], name)
    wanted, plan = find_stream_set(run.streams), run.plan(1000)
    config = run.config(wanted)
    torch.manual_seed(0)
    network = captioner_class(name)(config, Vocabulary([f"w{i}" for i in range(WORDS)])).to(device).train()
    learner, inputs = build_learner(plan, network), VideoInputs.for_captioner(network)
    collated = inputs.collate([make_features(config, wanted, seed) for seed in range(videos)])
    targets = pad_captions([[*range(5, 5 + CAPTION)]] * videos, plan.max_length)
    batch = TrainingBatch(tuple(map(str, range(videos))), collated, targets, None)
    began, clock = 0.0, cpu_seconds if device == "cpu" else time.perf_counter
    for step in range(steps + 1):
        if step == 1:
            began = clock()
        generator = torch.Generator().manual_seed(step)
        memory = network.memory_to_learn_from(network.encode_batches(batch.inputs_of(network)), generator)
        losses = supervised_loss(network, memory, batch, plan, 1.0, generator)
        learner.update(losses["total"], plan.learning_rate, plan.clip)
    spent = (clock() - began) / steps
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    parameters = sum(parameter.numel() for parameter in network.parameters()) / 1e6
    note = f"{parameters:.1f} M parameters, {peak:.1f} GiB"
    if videos < plan.videos:
        note += f", a batch of {plan.videos} takes {plan.videos / videos:g} times as long"
    return Row("paper_steps", f"{name}, {videos} clips", spent, "s", repeats=steps, note=note)


def main(arguments: Sequence[str] | None = None) -> int:
    """Times the captioners that are asked for, each in a process of its own."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add_options(parser)
    parser.add_argument("--only", default=",".join(RECIPES), help="captioners with commas between")
    parser.add_argument("--videos", type=int, default=32)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--one", action="store_true", help="measure in this process")
    given = parser.parse_args(arguments)
    names, steps = given.only.split(","), 1 if given.quick else 3
    if given.one:
        torch.set_num_threads(1)
        tell([measure_step(name, given.videos, given.device, steps) for name in names], given.results)
        return 0
    passed = [
        *(["--quick"] if given.quick else []),
        *(["--results", str(given.results)] if given.results else []),
    ]
    command = [sys.executable, "-m", "benchmarks.support.paper_steps", "--one", "--device", given.device]
    codes = [
        subprocess.run(
            [*command, "--only", name, "--videos", str(given.videos), *passed], check=False
        ).returncode
        for name in names
    ]
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
