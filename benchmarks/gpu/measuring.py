"""Times work on a device, counts its operations, and measures what the device multiplies at most."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch.utils.flop_counter import FlopCounterMode

from extractors.engines.engine import HALVES, Precision

#: Side of the square matrices whose product is the peak; on a CPU and in quick runs a small one.
SIDE, SMALL_SIDE = 8192, 512
DTYPES: Mapping[str, torch.dtype] = {"fp32": torch.float32, **HALVES}


@dataclass(frozen=True)
class Measuring:
    """How all is measured on one device.

    passes: of which the median counts, after ``warm`` others that make kernels, memory and graphs. quick:
    whether sizes are those of a test.
    """

    device: torch.device
    quick: bool
    passes: int = 5
    warm: int = 2
    _peaks: dict[Precision, float] = field(default_factory=dict)

    def seconds(self, work: Callable[[], object]) -> float:
        """Returns the median seconds of a pass: by events on a GPU, else by the clock."""
        if self.quick:
            return self._timed(work)
        for _ in range(self.warm):
            work()
        return statistics.median(self._timed(work) for _ in range(self.passes))

    def _timed(self, work: Callable[[], object]) -> float:
        if self.device.type != "cuda":
            began = time.perf_counter()
            work()
            return time.perf_counter() - began
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        torch.cuda.synchronize(self.device)
        begin.record()
        work()
        end.record()
        torch.cuda.synchronize(self.device)
        milliseconds: float = begin.elapsed_time(end)
        return milliseconds / 1000

    def count_operations(self, work: Callable[[], object]) -> float:
        """Returns the multiplications and additions of one pass, of matrix products and convolutions."""
        with FlopCounterMode(display=False) as counter:
            work()
        return float(counter.get_total_flops())

    def peak(self, precision: Precision) -> float:
        """Returns operations a second of a large matrix product; measured once."""
        if precision not in self._peaks:
            side = SMALL_SIDE if self.quick or self.device.type != "cuda" else SIDE
            left, right = (
                torch.randn(side, side, device=self.device, dtype=DTYPES[precision]) for _ in range(2)
            )
            self._peaks[precision] = 2 * side**3 / self.seconds(lambda: left @ right)
        return self._peaks[precision]

    def share_of_peak(self, operations: float, seconds: float, precision: Precision) -> str:
        """Says which share of the peak so many operations in so many seconds are."""
        return f"{100 * operations / seconds / self.peak(precision):.0f} % of peak"

    def memory(self) -> str:
        """Says how much the GPU held at most since the last time, and forgets it."""
        if self.device.type != "cuda":
            return ""
        most = torch.cuda.max_memory_allocated(self.device) / 2**30
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(self.device)
        return f"{most:.1f} GiB"
