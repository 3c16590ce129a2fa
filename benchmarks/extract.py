"""How fast windows become features, against the network run eagerly; and what that costs.

    python -m benchmarks.extract [--only resnet50,i3d_rgb] [--engines auto,torch] [--clips FOLDER]

For each network: from windows of prepared bytes to rows on the CPU, in windows a second. The plain loop is
the same network, eager and fp32, a window at a time. Both sides run at their own best number of threads out
of 1 and 2, take turns, and keep their medians. On a machine
that is busy otherwise, ``--clock processor`` counts the time on a processor instead, with one thread: what an
idle machine's clock shows. FLOPs are multiplications and additions, counted; "of the peak" is their share
of what a large matrix product of that precision and number of threads reaches in between. The numerical cost
is against our own fp32, on the frames of --clips or on smooth ones, with published weights where they are
installed, else with seeded ones.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import gc
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.support.likeness import HEADINGS, Likeness, compare
from benchmarks.support.material import clips, extract, windows
from extractors.engines.engine import HALVES, EngineName, Precision
from extractors.extractor import AnyExtractor, create, list_extractors
from extractors.pretrained.errors import WeightsError
from extractors.windows import WindowOptions

#: Seconds that a pass should last to be timed well, and windows it may have; after such a pass patience ends.
PASS, MOST, PATIENCE = 0.5, 32, 5.0
#: Matrix products a round; the quickest of all counts.
PRODUCTS = 4


@dataclass(frozen=True)
class Clock:
    """What counts as time, and the numbers of threads that are tried under it."""

    read: Callable[[], float]
    threads: tuple[int, ...]


CLOCKS: Mapping[str, Clock] = {
    "wall": Clock(time.perf_counter, (1, 2)),
    "processor": Clock(time.process_time, (1,)),
}


@dataclass
class Way:
    """One way to run a network, with the passes timed so far. items: windows of a pass."""

    label: str
    clock: Clock
    threads: int
    items: int
    run: Callable[[], object]
    speeds: list[float] = field(default_factory=list)

    def measure(self) -> float:
        """One pass; seconds."""
        torch.set_num_threads(self.threads)
        begin = self.clock.read()
        self.run()
        seconds = self.clock.read() - begin
        self.speeds.append(self.items / seconds)
        return seconds

    @property
    def speed(self) -> float:
        """Windows a second, the median."""
        return statistics.median(self.speeds)


@dataclass(frozen=True)
class Made:
    """An extractor and the weights it was made with."""

    extractor: AnyExtractor
    weights: str


@dataclass(frozen=True)
class Result:
    """One line of the table."""

    name: str
    ratio: float
    cells: tuple[str, ...]

    def __str__(self) -> str:
        return "| " + " | ".join((self.name, *self.cells)) + " |"


COLUMNS = (
    "network | weights | GFLOP | plain loop, fp32 | threads | windows/s | engine | threads | windows/s "
    f"| × | of the peak, plain and ours | {HEADINGS}"
)


def operations(extractor: AnyExtractor, window: Tensor) -> int:
    """Floating-point operations of one window."""
    with FlopCounterMode(display=False) as counter:
        extract(extractor, window)
    return int(counter.get_total_flops())


def product(precision: Precision, clock: Clock, threads: int) -> Way:
    """A large matrix product; its items are operations."""
    size = 2048
    a, b = (torch.rand(size, size).to(HALVES.get(precision, torch.float32)) for _ in range(2))
    return Way(f"matrix product, {precision}", clock, threads, 2 * size**3, lambda: a @ b)


@dataclass(frozen=True)
class Bench:
    """How all networks are measured. shortened: frames of a window, where not the network's own."""

    clock: Clock
    rounds: int
    cache: Path
    material: Sequence[Tensor]
    shortened: Mapping[str, int] = field(default_factory=dict)

    def made(self, name: str, threads: int, engine: EngineName, precision: Precision | None = None) -> Made:
        """With published weights where they are installed."""
        make = functools.partial(
            create, name, engine=engine, precision=precision, threads=threads, cache=self.cache
        )
        if name in self.shortened:
            make = functools.partial(make, windows=WindowOptions(stack_size=self.shortened[name]))
        try:
            return Made(make(), "published")
        except WeightsError:
            return Made(make(weights="seeded"), "seeded")

    def plain_ways(self, exact: AnyExtractor) -> Iterator[Way]:
        """Yields the network in eager fp32, a window at a time, on each number of threads."""
        for threads in self.clock.threads:
            yield self._way("eager", exact, threads, 1)

    def fast_ways(self, name: str, engine: EngineName) -> Iterator[tuple[Way, Made]]:
        for threads in self.clock.threads:
            fast = self.made(name, threads, engine)
            spec, batch = fast.extractor.spec, getattr(fast.extractor, "batch", 4)
            label = f"{spec.engine} {spec.precision}".strip()
            trial = self._way(label, fast.extractor, threads, batch)
            trial.measure()  # the first pass also makes kernels and memory
            passes = max(1, min(round(PASS / trial.measure()), MOST // batch))
            yield self._way(label, fast.extractor, threads, passes * batch), fast

    def _way(self, label: str, extractor: AnyExtractor, threads: int, items: int) -> Way:
        stacks = windows(extractor, self.material[0], items)
        return Way(label, self.clock, threads, items, functools.partial(extract, extractor, stacks))

    def take_turns(self, ways: Sequence[Way]) -> None:
        for _ in range(self.rounds):
            for way in ways:
                way.measure()

    def measure(self, name: str, engine: EngineName) -> Result:
        exact = self.made(name, 1, "torch", "fp32")
        flops = operations(exact.extractor, windows(exact.extractor, self.material[0], 1))  # warms it up too
        plain = best(list(self.plain_ways(exact.extractor)))
        made_ways = list(self.fast_ways(name, engine))
        ours = best([way for way, _ in made_ways])
        fast = next(of_one for way, of_one in made_ways if way is ours)
        products = [product(precision_of(way), self.clock, way.threads) for way in (plain, ours)]
        self.take_turns([plain, ours, *products * PRODUCTS])
        shares = (
            way.speed * flops / max(top.speeds) for way, top in zip((plain, ours), products, strict=True)
        )
        return Result(
            name,
            ours.speed / plain.speed,
            (
                *(fast.weights, f"{flops / 1e9:.3g}"),
                *(plain.label, str(plain.threads), f"{plain.speed:.3g}"),
                *(ours.label, str(ours.threads), f"{ours.speed:.3g}"),
                f"{ours.speed / plain.speed:.2f}",
                ", ".join(f"{share:.0%}" for share in shares),
                str(self.likeness(fast.extractor, exact.extractor)),
            ),
        )

    def likeness(self, fast: AnyExtractor, exact: AnyExtractor) -> Likeness:
        """Over all clips: a window of each, four where a window is one frame."""
        total = Likeness()
        for clip in self.material:
            stacks = windows(exact, clip, 1)
            if stacks.dim() < 5 or stacks.shape[1] == 1:
                stacks = windows(exact, clip, 4)
            total += compare(extract(fast, stacks), extract(exact, stacks))
        return total


def precision_of(way: Way) -> Precision:
    return "bf16" if way.label.endswith("bf16") else "fp32"


def best(ways: Sequence[Way]) -> Way:
    """The quickest of a trial, its passes forgotten; of one way there need be none."""
    if len(ways) == 1:
        return ways[0]
    for way in ways:
        if way.measure() < PATIENCE:
            way.measure()
    quickest = max(ways, key=lambda way: max(way.speeds))
    quickest.speeds.clear()
    return quickest


def machine() -> str:
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
        model = next((line.split(":")[1].strip() for line in file if line.startswith("model name")), "")
    able = [name for name, has in torch.cpu.get_capabilities().items() if has is True]
    fast = ", ".join(name for name in ("amx_bf16", "avx512_bf16", "avx512_f", "avx2") if name in able)
    return f"{model or platform.processor()} ({fast}), {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"


def versions() -> str:
    from importlib.metadata import PackageNotFoundError, version

    found = []
    for package in ("torch", "openvino", "torchvision", "timm", "pytorchvideo"):
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            found.append(f"no {package}")
    return ", ".join(found)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", help="these networks, by commas")
    parser.add_argument("--engines", default="auto", help=f"of {', '.join(get_args(EngineName))}, by commas")
    parser.add_argument("--clips", type=Path, help="folder of videos for the numerical cost")
    parser.add_argument("--most-clips", type=int, default=4, help="of the folder (default 4)")
    parser.add_argument("--rounds", type=int, default=3, help="of which the medians count (default 3)")
    parser.add_argument("--cache", type=Path, help="where converted models are kept (default: nowhere)")
    parser.add_argument("--stack-size", default="", help="shorter windows of slow networks: i3d_rgb=16,…")
    parser.add_argument("--clock", choices=tuple(CLOCKS), default="wall")
    arguments = parser.parse_args()
    arguments.chosen = (arguments.only or ",".join(list_extractors())).split(",")
    if unknown := set(arguments.chosen) - set(list_extractors()):
        parser.error(f"no such network: {', '.join(sorted(unknown))}")
    return arguments


def main() -> None:
    arguments = parsed()
    clock = CLOCKS[arguments.clock]
    print(f"{machine()}; {versions()}; {datetime.date.today()}; {arguments.clock} clock\n")
    print(f"| {COLUMNS} |\n|{' --- |' * (1 + COLUMNS.count('|'))}", flush=True)
    engines = arguments.engines.split(",")
    with tempfile.TemporaryDirectory() as folder:
        pairs = (text.split("=") for text in arguments.stack_size.split(",") if text)
        bench = Bench(
            clock,
            arguments.rounds,
            arguments.cache or Path(folder),
            clips(arguments.clips, arguments.most_clips),
            {name: int(size) for name, size in pairs},
        )
        ratios = [ratio for name in arguments.chosen for ratio in report(bench, name, engines)]
    if ratios:
        print(f"\nmedian of {len(ratios)}: {statistics.median(ratios):.2f} ×")


def report(bench: Bench, name: str, engines: Sequence[EngineName]) -> Iterator[float]:
    """Print the network's lines; the ratios."""
    for engine in engines:
        try:
            result = bench.measure(name, engine)
        except ImportError as error:
            print(f"{name}: not measured: {error}", file=sys.stderr)
            continue
        print(result, flush=True)
        yield result.ratio
        gc.collect()


if __name__ == "__main__":
    main()
