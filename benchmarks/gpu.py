"""Every extractor on a GPU: as like the CPU's float32 as its precision allows, and how fast.

    python -m benchmarks.gpu [--results FILE] [--seconds 480] [--only resnet50,i3d_rgb]

For each network the same windows run on the CPU in fp32 and on the GPU in fp32 and fp16 (eager
kernels; ``--compile`` adds torch.compile, a minute or more a network). A line is kept in the
results file as soon as it is measured; a second run goes on behind it. No network is begun that is likely to
end after ``--seconds``. The exit code is 1 where a network fails, its numbers are off by more than LARGEST or
LEAST_COSINE allow, or it was not reached.

Without a GPU, ``--device cpu --quick`` takes the same way through the code: one window a network, one pass.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.support.likeness import HEADINGS, Likeness, compare
from benchmarks.support.material import clips, describe, windows
from extractors.engines.engine import EngineName, Precision
from extractors.extractor import AnyExtractor, create, list_extractors
from extractors.windowing.batching import WindowRows

#: In fp32 the largest difference of a value that is no fault, as a share of the largest exact one.
LARGEST = 1e-3
#: Else the least cosine between a row's vectors: single values near a clipped ReLU may move far.
LEAST_COSINE: Mapping[str, float] = {"fp16": 0.99, "bf16": 0.98}
#: Passes of which the median counts, after as many that make kernels, memory and graphs.
PASSES, WARM = 5, 3
#: Windows of a pass on the GPU, in batches of the extractor.
BATCHES = 2
COLUMNS = f"network | engine | precision | windows/s | CPU fp32 windows/s | {HEADINGS} | GiB | verdict"


@dataclass(frozen=True)
class Line:
    """One network in one precision. memory: GiB that the GPU held at most. fault: in words, or empty."""

    name: str
    engine: str
    precision: str
    speed: float
    cpu_speed: float
    likeness: Likeness
    memory: float
    fault: str

    @property
    def key(self) -> tuple[str, str, str]:
        return (self.name, self.engine, self.precision)

    def __str__(self) -> str:
        speeds = f"{self.speed:.4g} | {self.cpu_speed:.3g}"
        cost = f"{self.likeness} | {self.memory:.1f} | {self.fault or 'good'}"
        return f"| {self.name} | {self.engine} | {self.precision} | {speeds} | {cost} |"


class Results:
    """Lines in a file, one of JSON each, appended as they come."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.lines: list[Line] = []
        for text in file.read_text().splitlines() if file.exists() else ():
            members = json.loads(text)
            self.lines.append(Line(**{**members, "likeness": Likeness(**members["likeness"])}))

    def __contains__(self, key: tuple[str, str, str]) -> bool:
        return any(line.key == key for line in self.lines)

    def add(self, line: Line) -> None:
        self.lines.append(line)
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.open("a") as out:
            out.write(json.dumps(asdict(line)) + "\n")


@dataclass(frozen=True)
class Check:
    """How all networks are checked. ways: engine and precision on the device."""

    device: torch.device
    ways: tuple[tuple[EngineName, Precision], ...]
    quick: bool
    cache: Path
    clip: Tensor

    def network(self, name: str, results: Results) -> Iterator[Line]:
        """The lines that are not among the results yet."""
        missing = [way for way in self.ways if (name, *way) not in results]
        if not missing:
            return
        torch.set_num_threads(1 if self.quick else os.cpu_count() or 1)
        exact = self._made(name, torch.device("cpu"), "torch", "fp32")
        stacks = windows(exact, self.clip, 1 if self.quick else 2)
        begin = time.perf_counter()
        wanted = describe(exact, stacks)
        cpu_speed = len(stacks) / (time.perf_counter() - begin)
        del exact
        for engine, precision in missing:
            yield self._line(name, engine, precision, cpu_speed, stacks, wanted)
            self._clear()

    def _line(
        self,
        name: str,
        engine: EngineName,
        precision: Precision,
        cpu_speed: float,
        stacks: Tensor,
        wanted: Mapping[str, WindowRows],
    ) -> Line:
        try:
            extractor = self._made(name, self.device, engine, precision)
            found = compare(describe(extractor, stacks.to(self.device)), wanted)
            speed = self._speed(extractor, stacks)
        except Exception as error:  # a network that fails is one line of the table, not its end
            fault = f"{type(error).__name__}: {error}".splitlines()[0][:200]
            return Line(name, engine, precision, 0.0, cpu_speed, Likeness(), 0.0, fault)
        memory = torch.cuda.max_memory_allocated() / 2**30 if self.device.type == "cuda" else 0.0
        fault = judged(found, precision)
        return Line(name, engine, precision, speed, cpu_speed, found, memory, fault)

    def _made(
        self, name: str, device: torch.device, engine: EngineName, precision: Precision
    ) -> AnyExtractor:
        """Seeded weights, so that nothing need be downloaded."""
        return create(name, device, engine=engine, precision=precision, cache=self.cache, weights="seeded")

    def _speed(self, extractor: AnyExtractor, stacks: Tensor) -> float:
        """Windows a second, whole batches from the device's memory to rows on the CPU."""
        count = 1 if self.quick else BATCHES * getattr(extractor, "batch", 4)
        many = stacks[torch.arange(count) % len(stacks)].to(self.device)
        seconds = []
        for number in range(1 if self.quick else WARM + PASSES):
            begin = time.perf_counter()
            describe(extractor, many)
            if number >= WARM or self.quick:
                seconds.append(time.perf_counter() - begin)
        return count / statistics.median(seconds)

    def _clear(self) -> None:
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()


def judged(found: Likeness, precision: Precision) -> str:
    """What is wrong, or nothing. Boxes of random weights are ties that any rounding breaks: their share is
    shown and only its absence is a fault."""
    if not found.difference < float("inf"):
        return "not finite"
    if found.boxes:
        return "" if found.boxes_kept else "no box is kept"
    if precision == "fp32" and found.difference > LARGEST:
        return f"differs by more than {LARGEST:g}"
    if found.cosine < LEAST_COSINE.get(precision, -1.0):
        return f"cosine below {LEAST_COSINE[precision]:g}"
    return ""


def run(check: Check, chosen: Sequence[str], results: Results, seconds: float) -> list[str]:
    """Measure until the time is over; the networks that it did not reach."""
    begin, longest = time.monotonic(), 0.0
    for number, name in enumerate(chosen):
        started = time.monotonic()
        if started - begin + longest > seconds:
            return list(chosen[number:])
        for line in check.network(name, results):
            results.add(line)
            print(line, flush=True)
        longest = max(longest, time.monotonic() - started)
    return []


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path("out/gpu.jsonl"))
    parser.add_argument("--seconds", type=float, default=480.0)
    parser.add_argument("--only", help="these networks, by commas")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--quick", action="store_true", help="one pass of one window")
    parser.add_argument("--compile", action="store_true", help="torch.compile too")
    arguments = parser.parse_args()
    arguments.chosen = (arguments.only or ",".join(list_extractors())).split(",")
    if unknown := set(arguments.chosen) - set(list_extractors()):
        parser.error(f"no such network: {', '.join(sorted(unknown))}")
    return arguments


def ways(compiled: bool) -> tuple[tuple[EngineName, Precision], ...]:
    eager: tuple[tuple[EngineName, Precision], ...] = (("torch", "fp32"), ("torch", "fp16"))
    return (*eager, ("compile", "fp16")) if compiled else eager


def main() -> int:
    arguments = parsed()
    device = torch.device(arguments.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        print("not run: there is no GPU here (--device cpu --quick takes the same way on a CPU)")
        return 0
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else "a CPU"
    print(f"{where}, {os.cpu_count()} cores, torch {torch.__version__}, {datetime.date.today()}\n")
    results = Results(arguments.results)
    with tempfile.TemporaryDirectory() as cache:
        (clip,) = clips(None, 1)
        check = Check(device, ways(arguments.compile), arguments.quick, Path(cache), clip)
        print(f"| {COLUMNS} |\n|{' --- |' * (1 + COLUMNS.count('|'))}")
        for line in results.lines:
            print(line)
        left = run(check, arguments.chosen, results, arguments.seconds)
    if left:
        print(f"not reached in {arguments.seconds:g} s, run again to go on: {', '.join(left)}")
    faults = [line for line in results.lines if line.fault]
    print(f"\n{len(results.lines)} lines, {len(faults)} at fault")
    return 1 if faults or left else 0


if __name__ == "__main__":
    sys.exit(main())
