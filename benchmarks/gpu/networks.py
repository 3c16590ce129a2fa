"""Measures every extractor on the device: as like the CPU's float32 as its precision allows, and how fast."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.gpu.measuring import Measuring
from benchmarks.support.likeness import Likeness, compare
from benchmarks.support.material import extract, windows
from benchmarks.support.rows import Row
from extractors.engines.engine import EngineName, Precision
from extractors.extractor import AnyExtractor, create

#: In fp32 the largest difference of a value that is no fault, as a share of the largest exact one.
LARGEST = 1e-3
#: Else the least cosine between a row's vectors: single values near a clipped ReLU may move far.
LEAST_COSINE: Mapping[str, float] = {"fp16": 0.99, "bf16": 0.98}
#: Windows of a pass on the device, in batches of the extractor.
BATCHES = 2
FAULT = "FAULT: "


@dataclass(frozen=True)
class NetworkCheck:
    """How all networks are checked. ways: engine and precision on the device. cache: of converted ones."""

    measuring: Measuring
    ways: tuple[tuple[EngineName, Precision], ...]
    cache: Path
    clip: Tensor

    def rows(self, name: str) -> Iterator[Row]:
        """Yields a row for each way of running one network: windows a second, beside the CPU's in fp32."""
        exact = self._made(name, torch.device("cpu"), "torch", "fp32")
        stacks = windows(exact, self.clip, 1 if self.measuring.quick else 2)
        begin = time.perf_counter()
        expected = extract(exact, stacks)
        cpu_speed = len(stacks) / (time.perf_counter() - begin)
        del exact
        for engine, precision in self.ways:
            label = f"{name} {precision}" if engine == "torch" else f"{name} {precision} {engine}"
            row = partial(Row, "gpu", label, unit="windows/s", peer=cpu_speed, better="more")
            try:
                extractor = self._made(name, self.measuring.device, engine, precision)
                alike = compare(extract(extractor, stacks.to(self.measuring.device)), expected)
                speed, share = self._speed(extractor, stacks, precision)
            except Exception as error:  # a network that fails is one row of the table, not its end
                fault = f"{FAULT}{type(error).__name__}: {error}".splitlines()[0][:200]
                yield row(0.0, peer_name="CPU fp32", note=fault)
                continue
            notes = (
                share,
                f"cosine {alike.cosine:.4f}",
                self.measuring.memory(),
                judge(alike, precision),
            )
            yield row(speed, peer_name="CPU fp32", note=", ".join(filter(None, notes)))
            del extractor

    def _made(
        self, name: str, device: torch.device, engine: EngineName, precision: Precision
    ) -> AnyExtractor:
        """Makes an extractor of seeded weights, so that nothing need be downloaded."""
        return create(name, device, engine=engine, precision=precision, cache=self.cache, weights="seeded")

    def _speed(self, extractor: AnyExtractor, stacks: Tensor, precision: Precision) -> tuple[float, str]:
        """Returns windows a second, from the device's memory to rows on the CPU, and the share of peak."""
        count = 1 if self.measuring.quick else BATCHES * getattr(extractor, "batch", 4)
        many = stacks[torch.arange(count) % len(stacks)].to(self.measuring.device)
        seconds = self.measuring.seconds(lambda: extract(extractor, many))
        operations = self.measuring.count_operations(lambda: extract(extractor, many))
        return count / seconds, self.measuring.share_of_peak(operations, seconds, precision)


def judge(found: Likeness, precision: Precision) -> str:
    """Says what is wrong, or nothing. Boxes of random weights are ties that any rounding breaks: only that
    none is kept is a fault."""
    if not found.difference < float("inf"):
        return f"{FAULT}not finite"
    if found.boxes:
        return "" if found.boxes_kept else f"{FAULT}no box is kept"
    if precision == "fp32" and found.difference > LARGEST:
        return f"{FAULT}differs by more than {LARGEST:g}"
    if found.cosine < LEAST_COSINE.get(precision, -1.0):
        return f"{FAULT}cosine below {LEAST_COSINE[precision]:g}"
    return ""
