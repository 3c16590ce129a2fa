"""How long does a training step wait for its batch, where nothing is computed?

    git worktree add ../before COMMIT
    python -m benchmarks.loader [--peer ../before] [--videos 1,8,32,64] [--quick]

Saved features of MSR-VTT's size, 23 rows of 49 cells of 2,048 float16 a video, are batched by
``VideoBatches`` and ``BatchLoader`` as a GPU would be fed: what is timed is a step's wait. The first epoch,
which verifies all files, is not counted. The files are in the page cache. With ``--peer`` the code of another
checkout reads the same files, in turns with this one. The exponent says how the cost grows with the batch.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from extractors.features import Stream, StreamSpec
from extractors.video_features.feature_files import FeatureSpec, SafetensorsForm, SavedFeatures, VideoSource
from models.inputs import InputStream
from models.stream_set import StreamInput, StreamSet
from models.vocabulary import Vocabulary
from training.batches.loading import BatchLoader
from training.batches.video_batches import CaptionedVideo, VideoBatches, VideoInputs
from training.datasets.caption_set import VideoItem
from training.saved_features.extracted_features import ExtractedFeatures

if TYPE_CHECKING:  # another checkout's may differ
    from benchmarks.support.rows import Row

#: The other checkout's rows.
BEFORE = "before"
#: Rows of time, cells and channels of a video; in quick runs.
SHAPE, SMALL_SHAPE = (23, 49, 2048), (4, 4, 16)
SET = StreamSet("loader", "any", (StreamInput("grid", "resnet101", 2048, regions="grid", count=49),), "")


def write_features(folder: Path, videos: int, shape: tuple[int, int, int]) -> None:
    """Writes features of ``videos`` videos as ``reelword extract`` does."""
    spec, times = StreamSpec("resnet101", "", ""), np.arange(shape[0], dtype=np.float64)
    for number in range(videos):
        values = torch.randn(shape, generator=torch.Generator().manual_seed(number)).half()
        saved = SavedFeatures(
            FeatureSpec("resnet101", spec),
            VideoSource(f"{number}.mp4", "", "", 0),
            {},
            25.0,
            {"grid": Stream(values, times, times + 1, spec)},
        )
        SafetensorsForm().write(folder / "resnet101", str(number), saved)


@dataclass(frozen=True)
class StepSeconds:
    """What a step's batch takes, in seconds."""

    clock: float  #: a mean: while one batch is waited for, others are made
    processor: float  #: of all threads


def measure_steps(folder: Path, videos: int, steps: int, ahead: int) -> StepSeconds:
    """Times the steps after the first epoch of batches of ``videos``; ``ahead`` are made at a time."""
    store = ExtractedFeatures(folder, SET)
    ids = sorted(file.stem for file in (folder / "resnet101").iterdir())
    items = [
        CaptionedVideo.from_video(VideoItem(name, None, "train", ("a word or two",)), store) for name in ids
    ]
    streams = (InputStream(name="grid", width=2048),)
    inputs = VideoInputs(streams, **_keep_half())
    batches = VideoBatches(items, Vocabulary(["a"]), videos, 1, 20, 0, inputs)
    first = math.ceil(len(items) / videos) + ahead + 1
    began = (0.0, 0.0)
    for step, _ in BatchLoader(batches, ahead=ahead).load(0, first + steps + 1):
        now = (time.perf_counter(), time.process_time())
        began = now if step == first else began
    return StepSeconds(*((end - begin) / steps for begin, end in zip(began, now, strict=True)))


def _keep_half() -> dict[str, Any]:
    """Returns the layout that a GPU is fed with; nothing where a checkout has no other than float32."""
    from models import inputs

    return {"layout": inputs.BatchLayout(keeps_half=True)} if hasattr(inputs, "BatchLayout") else {}


def measure_peer(peer: Path, folder: Path, videos: int, steps: int) -> StepSeconds:
    """Times the code of another checkout, which makes one batch ahead."""
    options = ["--worker", str(folder), "--videos", str(videos), "--steps", str(steps)]
    environment = {**os.environ, "PYTHONPATH": os.fspath(peer.resolve())}
    answer = subprocess.run(
        [sys.executable, __file__, *options], cwd=peer, env=environment, check=True, stdout=subprocess.PIPE
    )
    return StepSeconds(*map(float, answer.stdout.split()))


def compute_exponent(videos: Sequence[int], seconds: Sequence[float]) -> float:
    """Computes by which power of the batch its seconds grow."""
    return float(np.polyfit(np.log(videos), np.log(seconds), 1)[0])


def compare(folder: Path, arguments: argparse.Namespace) -> Iterator[Row]:
    """Yields rows for each size of a batch and each number of threads, and the exponents."""
    from benchmarks.support.rows import Row

    sizes = [int(each) for each in arguments.videos.split(",")]
    costs: dict[str, list[float]] = {}
    for videos in sizes:
        taken = take_turns(folder, videos, arguments)
        for name, of_name in taken.items():
            clock, processor = (
                statistics.median(values) for values in zip(*map(astuple, of_name), strict=True)
            )
            costs.setdefault(name, []).append(processor)
            goal = "ours <= 0.05" if videos == 32 and name != BEFORE and not arguments.quick else ""
            note, repeats = f"{processor:.3f} s of the processor", len(of_name)
            yield Row("loader", f"{videos} videos, {name}", clock, "s", goal=goal, repeats=repeats, note=note)
    for name, seconds in costs.items():
        yield Row(
            "loader", f"exponent of the processor's seconds, {name}", compute_exponent(sizes, seconds), ""
        )


def take_turns(folder: Path, videos: int, arguments: argparse.Namespace) -> dict[str, list[StepSeconds]]:
    """Times this checkout with each number of threads, and the other one, in turns."""
    taken: dict[str, list[StepSeconds]] = {}
    for _ in range(arguments.rounds):
        for ahead in arguments.ahead:
            seconds = measure_steps(folder, videos, arguments.steps, ahead)
            taken.setdefault(f"{ahead} at a time", []).append(seconds)
        if arguments.peer is not None:
            seconds = measure_peer(arguments.peer, folder, videos, arguments.steps)
            taken.setdefault(BEFORE, []).append(seconds)
    return taken


def main() -> None:
    """Measures what is asked for; in a peer's checkout prints seconds alone."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small files, few steps")
    parser.add_argument("--results", type=Path, help="append the rows to this file as JSON lines")
    parser.add_argument("--peer", type=Path, help="another checkout")
    parser.add_argument("--videos", default="1,8,32,64", help="sizes of batches, by commas")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ahead", type=int, nargs="+", default=[1, 2, 3], help="batches made at a time")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # of a copy: threads of the loader share the cores
    if arguments.worker is not None:
        print(*astuple(measure_steps(arguments.worker, int(arguments.videos), arguments.steps, 1)))
        return
    from benchmarks.support.rows import tell

    if arguments.quick:
        arguments.videos, arguments.steps, arguments.rounds = "1,2", 2, 1
    with tempfile.TemporaryDirectory() as folder:
        write_features(Path(folder), 4 if arguments.quick else 64, SMALL_SHAPE if arguments.quick else SHAPE)
        tell(compare(Path(folder), arguments), arguments.results)


if __name__ == "__main__":
    main()
