"""CUDA graphs: what a network asks of a GPU is recorded once and then started as a whole.

Launching the hundreds of small kernels of a network one by one takes the processor longer than the GPU needs
to run them. Best practice and its limits: the "CUDA Graphs" section of torch's notes on CUDA semantics.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

Run: TypeAlias = Callable[[Tensor], tuple[Tensor, ...]]

log = logging.getLogger(__name__)


class Recording:
    """One graph: of one function for inputs of one shape. What it returns is overwritten by the next call."""

    def __init__(self, run: Run, example: Tensor) -> None:
        self._input = example.clone()
        aside = torch.cuda.Stream(example.device)  # type: ignore[no-untyped-call]
        aside.wait_stream(torch.cuda.current_stream(example.device))
        with torch.cuda.stream(aside):  # libraries choose their kernels in the first calls
            for _ in range(2):
                run(self._input)
        torch.cuda.current_stream(example.device).wait_stream(aside)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._outputs = run(self._input)

    def __call__(self, x: Tensor) -> tuple[Tensor, ...]:
        self._input.copy_(x)
        self._graph.replay()
        return tuple(output.clone() for output in self._outputs)


class Recorder:
    """A function of one tensor, recorded for each shape that comes a second time.

    record: makes the recording. most: shapes that are kept; the one unused for longest goes first. What
    cannot be recorded, because it waits for the GPU in between, runs as it is.
    """

    def __init__(self, run: Run, record: Callable[[Run, Tensor], Run] = Recording, most: int = 8) -> None:
        self._run, self._record, self._most = run, record, most
        self._recordings: OrderedDict[torch.Size, Run | None] = OrderedDict()

    def __call__(self, x: Tensor) -> tuple[Tensor, ...]:
        known = x.shape in self._recordings
        recording = self._recordings.pop(x.shape, None)
        if known and recording is None:
            recording = self._recorded(x)
        self._recordings[x.shape] = recording
        while len(self._recordings) > self._most:
            self._recordings.popitem(last=False)
        return (recording or self._run)(x)

    def _recorded(self, x: Tensor) -> Run:
        try:
            return self._record(self._run, x)
        except RuntimeError as error:
            log.warning("no CUDA graph for inputs of %s: %s", tuple(x.shape), error)
            return self._run
