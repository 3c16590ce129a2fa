"""Measures all that a GPU computes: every extractor and captioner in fp32 and bf16, and training steps.

    python -m benchmarks.gpu [--results FILE] [--seconds 480] [--only resnet50,g2l] [--parts training]

Times are those of CUDA events; beside them stands the share of the peak, a large matrix product in the same
run. For each extractor the same windows run on the CPU in fp32: they say whether its numbers are right.
``--compile`` adds torch.compile with CUDA graphs, a minute or more a network. A row is kept in the results
file as soon as it is measured, and a second run continues after those. Nothing is begun that is likely to end
after ``--seconds``. The exit code is 1 where a network fails, its numbers are off, or it was not reached.

Without a GPU, ``--device cpu --quick`` takes the same way through the code in small sizes.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from benchmarks.gpu.captioners import measure_captions, measure_training
from benchmarks.gpu.clips import measure_clips
from benchmarks.gpu.measuring import Measuring
from benchmarks.gpu.networks import FAULT, NetworkCheck
from benchmarks.support.material import clips
from benchmarks.support.paper_batches import list_paper_captioners
from benchmarks.support.rows import Row, add_options, print_table
from extractors.engines.engine import EngineName, Precision
from extractors.extractor import list_extractors

PARTS = ("training", "captioners", "clips", "networks")


@dataclass(frozen=True)
class Task:
    """One piece of work that yields rows; first is the name of the first of them."""

    first: str
    rows: Callable[[], Iterable[Row]]


def list_tasks(
    parts: Sequence[str], only: Sequence[str], measuring: Measuring, check: NetworkCheck
) -> Iterator[Task]:
    """Lists what is to be measured.

    Args:
        parts: of PARTS.
        only: extractors and captioners, all where there are none.
        measuring: on which device, how often.
        check: of the networks.
    """
    for name, recipe in list_paper_captioners().items():
        if only and name not in only:
            continue
        if "training" in parts:
            yield Task(f"{name} step fp32", partial(measure_training, name, recipe, measuring))
        if "captioners" in parts:
            yield Task(f"{name} captions fp32", partial(measure_captions, name, recipe, measuring))
    if "clips" in parts and not only:
        yield Task("clips with decoding, efficientnet-lite2", partial(measure_clips, measuring, check.cache))
    for name in list_extractors() if "networks" in parts else ():
        if not only or name in only:
            yield Task(f"{name} fp32", partial(check.rows, name))


class Results:
    """Keeps rows in a file, a line of JSON each, as they come; with those of an earlier run."""

    def __init__(self, file: Path) -> None:
        self._file = file
        lines = file.read_text().splitlines() if file.exists() else []
        self.rows = [row for row in map(Row.from_json, lines) if row.benchmark == "gpu"]

    def __contains__(self, name: str) -> bool:
        return any(row.name == name for row in self.rows)

    def add(self, row: Row) -> None:
        """Appends a row, and says it."""
        self.rows.append(row)
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.open("a") as out:
            out.write(row.to_json() + "\n")
        print(f"{row.name}: {row.ours:.4g} {row.unit}, {row.note}", flush=True)


def run(tasks: Sequence[Task], results: Results, seconds: float) -> list[str]:
    """Measures until the time is over.

    Args:
        tasks: in their order; those that the results have are left out.
        results: to which rows are added.
        seconds: nothing is begun that is likely to end later.

    Returns:
        What was not reached.
    """
    begin, longest = time.monotonic(), 0.0
    for number, task in enumerate(tasks):
        if task.first in results:
            continue
        started = time.monotonic()
        if started - begin + longest > seconds:
            return [each.first for each in tasks[number:] if each.first not in results]
        for row in task.rows():
            results.add(row)
        gc.collect()
        longest = max(longest, time.monotonic() - started)
    return []


def parse() -> argparse.Namespace:
    """Reads the options; ends the process where a name is not known."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    add_options(parser)
    parser.set_defaults(results=Path("out/gpu.jsonl"))
    parser.add_argument("--seconds", type=float, default=480.0)
    parser.add_argument("--only", default="", help="these extractors and captioners, by commas")
    parser.add_argument("--parts", default=",".join(PARTS), help="by commas")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--compile", action="store_true", help="networks by torch.compile too")
    arguments = parser.parse_args()
    arguments.only = [name for name in arguments.only.split(",") if name]
    names = {*list_extractors(), *list_paper_captioners()}
    if unknown := set(arguments.only) - names:
        parser.error(
            f"there is no network or captioner {min(unknown)}; there are: {', '.join(sorted(names))}"
        )
    arguments.parts = arguments.parts.split(",")
    if unknown := set(arguments.parts) - set(PARTS):
        parser.error(f"there is no part {min(unknown)}; there are: {', '.join(PARTS)}")
    return arguments


def main() -> int:
    """Measures what is asked for, and returns the exit code."""
    arguments = parse()
    device = torch.device(arguments.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        print("not run: there is no GPU here (--device cpu --quick takes the same way on a CPU)")
        return 0
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else "a CPU"
    print(f"{where}, torch {torch.__version__}, {datetime.date.today()}\n")
    results = Results(arguments.results)
    ways: tuple[tuple[EngineName, Precision], ...] = (("torch", "fp32"), ("torch", "bf16"))
    if arguments.compile:
        ways = (*ways, ("compile", "bf16"))
    with tempfile.TemporaryDirectory() as cache:
        measuring = Measuring(device, arguments.quick)
        check = NetworkCheck(measuring, ways, Path(cache), clips(None, 1)[0])
        tasks = list(list_tasks(arguments.parts, arguments.only, measuring, check))
        left = run(tasks, results, arguments.seconds)
    print_table(results.rows, title=where)
    if left:
        print(f"not reached in {arguments.seconds:g} s, run again to go on: {', '.join(left)}")
    faults = [row for row in results.rows if FAULT in row.note]
    print(f"{len(results.rows)} rows, {len(faults)} at fault")
    return 1 if faults or left else 0


if __name__ == "__main__":
    sys.exit(main())
