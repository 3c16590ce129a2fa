"""The one seam of every captioner: encode the features, start a state, take a step.

The decoding loop, the training losses and the service know nothing else. Rows are beams or
samples: with B videos and K rows a video, R = B·K and the rows of a video stand side by side, so
that a captioner can view (R, …) as (B, K, …) and attend to each video's memory without copies of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Generic, TypeVar

import torch
from pydantic import BaseModel
from torch import Tensor, nn

from extractors.cell_edges import Edges, cell_edges
from extractors.features import Features
from models.vocabulary import BOS, Vocabulary

RowsT = TypeVar("RowsT", bound="Rows")


def _select(value: Any, index: Tensor) -> Any:
    if isinstance(value, Tensor):
        return value.index_select(0, index)
    if isinstance(value, Rows):
        return value.select(index)
    if isinstance(value, tuple):
        return tuple(_select(item, index) for item in value)
    if isinstance(value, Mapping):
        return {key: _select(item, index) for key, item in value.items()}
    return value


class Rows:
    """Base of dataclasses whose tensors all have the rows (or the videos) as first axis."""

    def select(self: RowsT, index: Tensor) -> RowsT:
        """The rows at ``index`` (R',), in that order, repeats allowed."""
        values = {f.name: _select(getattr(self, f.name), index) for f in fields(self)}  # type: ignore[arg-type]
        return type(self)(**values)


@dataclass(frozen=True, eq=False)
class StepAttention(Rows):
    """Where one step looked.

    temporal: (R, T), sums to one over the valid rows of time.
    spatial: (R, T, N), sums to one over the cells or boxes of each time, or None.
    extras: the captioner's own tensors (R, …) under its own names.
    loss: (R,), what the captioner adds to the training loss at this step; None outside training.
    """

    temporal: Tensor
    spatial: Tensor | None
    extras: Mapping[str, Tensor]
    loss: Tensor | None = None


@dataclass(frozen=True, eq=False)
class State(Rows):
    """Base of what a captioner carries from word to word; fields are tensors (R, …)."""


@dataclass(frozen=True, eq=False)
class Memory(Rows):
    """Base of encoded videos; fields are tensors (B, …). ``times`` is (B, T, 2) in seconds."""

    times: Tensor

    @property
    def size(self) -> int:
        return int(self.times.shape[0])

    @property
    def moments(self) -> Tensor:
        """(B,), how many rows of ``times`` are each video's own; those of a batch's padding end at 0."""
        return (self.times[..., 1] > 0).sum(1).clamp(min=1)


MemoryT = TypeVar("MemoryT", bound=Memory)
StateT = TypeVar("StateT", bound=State)


class Captioner(nn.Module, ABC, Generic[MemoryT, StateT]):
    """From features to words.

    ``config`` (pydantic) and ``vocabulary`` decide every shape; a checkpoint carries both.
    """

    name: ClassVar[str]
    config_class: ClassVar[type[BaseModel]]
    config: BaseModel

    def __init__(self, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.vocabulary = vocabulary

    @abstractmethod
    def encode(self, features: Sequence[Features]) -> MemoryT:
        """Features of B videos, padded together by masks."""

    @abstractmethod
    def start(self, memory: MemoryT, rows_per_video: int) -> StateT:
        """The state before the first word, R = B × ``rows_per_video`` rows."""

    @abstractmethod
    def step(
        self, state: StateT, word: Tensor, memory: MemoryT
    ) -> tuple[Tensor, StateT, StepAttention | None]:
        """word: (R,) ids just written. Returns log-probabilities (R, V), the state, the attention."""

    def map_edges(self, stream: str, side: int) -> Edges:
        """Where the rows, and columns, of its spatial attention lie in what the network saw.

        stream: the map that it attends to, side: how many rows its attention has.
        """
        return cell_edges(stream, side)

    def first_word(self, memory: MemoryT, rows_per_video: int) -> Tensor:
        """(R,) ids that the first step is given."""
        return torch.full((memory.size * rows_per_video,), BOS, dtype=torch.long, device=memory.times.device)
