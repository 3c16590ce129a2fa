"""Holds what captioners carry from video to word: encoded videos, a state a row, and a step's attention.

Rows are beams or samples: with B videos and K rows a video, R = B·K and the rows of a video stand side by
side, so that a captioner can view (R, …) as (B, K, …) and attend to each video's memory without copies.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Self

from torch import Tensor


def _select(value: Any, index: Tensor | slice) -> Any:
    if isinstance(value, Tensor):
        return value[index] if isinstance(index, slice) else value.index_select(0, index)
    if isinstance(value, TensorRows):
        return value.select(index)
    if isinstance(value, tuple):
        return tuple(_select(item, index) for item in value)
    if isinstance(value, Mapping):
        return {key: _select(item, index) for key, item in value.items()}
    return value


class TensorRows:
    """Selects rows of a dataclass whose tensors all have the rows (or the videos) as first axis."""

    def select(self, index: Tensor | slice) -> Self:
        """Takes the rows at ``index`` (R',), in that order, repeats allowed; those of a slice uncopied."""
        values = {f.name: _select(getattr(self, f.name), index) for f in fields(self)}  # type: ignore[arg-type]
        return type(self)(**values)


@dataclass(frozen=True, eq=False)
class StepAttention(TensorRows):
    """Holds the attention of one step."""

    temporal: Tensor  #: (R, T), sums to one over the valid rows of time
    spatial: Tensor | None  #: (R, T, N), sums to one over the cells or boxes of each time, or None
    extras: Mapping[str, Tensor]  #: the captioner's own tensors (R, …) under its own names
    #: (R,), what the captioner adds to the training loss at this step; None outside training
    loss: Tensor | None = None

    def split_rows(self, count: int) -> Self:
        """Gives each step of time of a row a row of its own.

        count: steps, behind each other, that a row's places are of; ``extras`` stay as they are.
        """
        assert self.spatial is not None, "there are no places to be split"
        words, rows, places = self.spatial.shape
        joint = (self.temporal.unsqueeze(2) * self.spatial).reshape(words, rows * count, places // count)
        temporal = joint.sum(2)
        spatial = (joint / temporal.unsqueeze(2)).nan_to_num(1 / joint.shape[2])
        return replace(self, temporal=temporal, spatial=spatial)


@dataclass(frozen=True, eq=False)
class State(TensorRows):
    """Carries what a captioner knows from word to word; the fields of subclasses are tensors (R, …)."""


@dataclass(frozen=True, eq=False)
class Memory(TensorRows):
    """Holds B encoded videos; the fields of subclasses are tensors (B, …)."""

    times: Tensor  #: (B, T, 2) seconds

    @property
    def size(self) -> int:
        """B, the number of videos."""
        return int(self.times.shape[0])

    @property
    def moments(self) -> Tensor:
        """(B,), how many rows of ``times`` are each video's own; those of a batch's padding end at 0."""
        return (self.times[..., 1] > 0).sum(1).clamp(min=1)
