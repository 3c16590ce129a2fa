"""What do pretrained captioners of full size cost on a CPU, in memory and seconds?

    python -m benchmarks.pretrained                        all in both precisions, each in its own process
    python -m benchmarks.pretrained git-base --precision float32

The shapes are the published ones (benchmarks/support/full_size.py); weights are random, so captions are
nonsense and run to their full length. One video of ten seconds and 640 x 360, twenty tokens, with attention.
Seconds are CPU seconds of one thread, which a busy machine does not change much, of one captioning after one
to warm up. Memory is the largest that the process was resident with, less what it was before it loaded.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from threading import Event, Thread
from typing import ParamSpec, TypeVar

import numpy as np
import psutil
import torch
from transformers.utils import logging

from benchmarks.support.full_size import SHAPES, write_full_size
from extractors.features import Frames
from models.decoding.options import DecodingOptions
from models.pretrained.folder import Precision, read_pretrained_info
from models.pretrained.load import AnyPretrainedCaptioner, load_pretrained_captioner
from models.pretrained.opening import LoadSettings

P = ParamSpec("P")
T = TypeVar("T")
MIB = 1 << 20
PRECISIONS: tuple[Precision, ...] = ("float32", "bfloat16")
SEARCHES = {"beam of 5": DecodingOptions(beam_size=5), "greedy": DecodingOptions(method="greedy")}


@dataclass(frozen=True)
class Cost:
    """Of one captioner in one precision. estimate, peak: MiB. load, seconds: of CPU, for loading and for a
    caption with each search."""

    name: str
    precision: Precision
    parameters: int
    estimate: int
    peak: int
    load: float
    seconds: dict[str, float]

    def __str__(self) -> str:
        cells = [
            self.name,
            self.precision,
            f"{self.parameters / 1e6:.0f} M",
            str(self.estimate),
            str(self.peak),
        ]
        cells += [f"{self.load:.1f}", *(f"{self.seconds[name]:.1f}" for name in SEARCHES)]
        return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=list(SHAPES), help=f"some of {', '.join(SHAPES)}")
    parser.add_argument("--precision", choices=PRECISIONS, action="append")
    arguments = parser.parse_args()
    print(f"one thread, torch {torch.__version__}")
    print(f"| captioner | precision | parameters | estimate | peak | load | {' | '.join(SEARCHES)} |")
    print(f"| --- | --- {'| ---: ' * (4 + len(SEARCHES))}|")
    for name in arguments.names:
        for precision in arguments.precision or PRECISIONS:
            with tempfile.TemporaryDirectory() as folder:
                _alone(write_full_size, Path(folder) / name, name, precision)
                print(_alone(measure, Path(folder) / name, precision), flush=True)


def _alone(work: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
    """The work's result, from a process that ends with it and so gives its memory back."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(work, *given, **named).result()


def measure(folder: Path, precision: Precision) -> Cost:
    """Loads a captioner and lets it write with each search.

    Args:
        folder: As ``write_full_size`` left it.
        precision: To load it in.

    Returns:
        What it cost.
    """
    logging.set_verbosity_error()
    torch.set_num_threads(1)
    info, before = read_pretrained_info(folder), psutil.Process().memory_info().rss
    with _watching_memory() as peak:
        began = time.process_time()
        captioner = load_pretrained_captioner(info, LoadSettings(precision=precision))
        load = time.process_time() - began
        captioner.caption([_video()], SEARCHES["greedy"])
        seconds = {name: _seconds(captioner, options) for name, options in SEARCHES.items()}
    estimate = info.memory(precision) // MIB
    return Cost(folder.name, precision, info.parameters, estimate, (peak[0] - before) // MIB, load, seconds)


def _seconds(captioner: AnyPretrainedCaptioner, options: DecodingOptions) -> float:
    began = time.process_time()
    captioner.caption([_video()], options)
    return time.process_time() - began


@contextmanager
def _watching_memory() -> Iterator[list[int]]:
    """A list of the one number of bytes that the process was resident with at most, while it lasts."""
    peak, ended = [0], Event()

    def watch() -> None:
        while not ended.wait(0.05):
            peak[0] = max(peak[0], psutil.Process().memory_info().rss)

    thread = Thread(target=watch)
    thread.start()
    try:
        yield peak
    finally:
        ended.set()
        thread.join()


def _video() -> Frames:
    pixels = np.random.default_rng(0).integers(0, 256, (16, 360, 640, 3), np.uint8)
    return Frames(pixels, np.arange(16) * 10 / 16, 10.0)


if __name__ == "__main__":
    main()
