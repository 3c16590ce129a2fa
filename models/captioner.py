"""The interface of every captioner: encode the features, start a state, take a step, and what training and
the service ask beside that.

Nothing outside a captioner's own file knows which captioner it has. Rows are beams or
samples: with B videos and K rows a video, R = B·K and the rows of a video stand side by side, so
that a captioner can view (R, …) as (B, K, …) and attend to each video's memory without copies of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, Self, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel
from torch import Tensor, nn

from extractors.features import Features
from extractors.preprocessing.cell_edges import Edges, find_cell_edges
from models.caption import Extras, KeyMoment
from models.vocabulary import BOS, Vocabulary

if TYPE_CHECKING:
    from models.inputs import Batch

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


@dataclass(frozen=True, eq=False)
class OwnLoss:
    """A captioner's own supervised loss. total: what is descended; per_word: nats a word, to be logged."""

    total: Tensor
    per_word: Tensor


@dataclass(frozen=True, eq=False)
class CaptionSteps:
    """The steps of one caption, by which its captioner explains it.

    steps: tensors (words, …) as they were batched. memory: of the batch; video: its place there. times:
    (T, 2), the video's own moments. regions: N, the video's own.
    """

    steps: StepAttention
    memory: Memory
    video: int
    times: NDArray[np.float64]
    regions: int

    def moment(self, row: int, weight: float) -> KeyMoment:
        """Row ``row`` of the captioner's clock, with the weight by which it was chosen."""
        return KeyMoment(row, round(float(self.times[row, 0]), 4), round(weight, 5))


def as_numpy(value: Tensor) -> NDArray[np.float64]:
    """A tensor as float64 on the CPU."""
    return value.detach().to("cpu", torch.float64).numpy()


MemoryT = TypeVar("MemoryT", bound=Memory)
StateT = TypeVar("StateT", bound=State)


class InputDescription(Protocol):
    """An input's name and width (numbers a row or cell)."""

    @property
    def name(self) -> str: ...

    @property
    def width(self) -> int: ...


class Captioner(nn.Module, ABC, Generic[MemoryT, StateT]):
    """From features to words.

    ``config`` (pydantic) and ``vocabulary`` decide every shape; a checkpoint carries both.
    """

    name: ClassVar[str]
    config_class: ClassVar[type[BaseModel]]
    config: BaseModel

    def __init__(self, config: BaseModel, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.config, self.vocabulary = config, vocabulary

    @property
    @abstractmethod
    def inputs(self) -> Sequence[InputDescription]:
        """The streams that it reads, in the order of ``encode_batches``; each name once.

        Attention lies on the clock and in the places of the first.
        """

    @property
    def optional_streams(self) -> frozenset[str]:
        """Those of ``inputs`` that any video may lack, such as its sound."""
        return frozenset()

    @abstractmethod
    def encode(self, features: Sequence[Features]) -> MemoryT:
        """Encodes features of B videos, padded together by masks."""

    @abstractmethod
    def encode_batches(self, batches: Sequence[Batch]) -> MemoryT:
        """Encodes B videos from one padded batch a stream, in the order of ``inputs``."""

    @abstractmethod
    def start(self, memory: MemoryT, rows_per_video: int) -> StateT:
        """The state before the first word, R = B × ``rows_per_video`` rows."""

    @abstractmethod
    def step(
        self, state: StateT, word: Tensor, memory: MemoryT
    ) -> tuple[Tensor, StateT, StepAttention | None]:
        """word: (R,) ids just written. Returns log-probabilities (R, V), the state, the attention."""

    @property
    def training_phases(self) -> tuple[str, ...]:
        """Phases of its own that training/optimization/refocus_phases.py goes through behind cross-entropy,
        in their order."""
        return ()

    def at_start_of(self, phase: str) -> Self:  # noqa: ARG002
        """The captioner that goes through one of its ``training_phases``."""
        return self

    def memory_to_learn_from(self, memory: MemoryT, generator: torch.Generator) -> MemoryT:  # noqa: ARG002
        """The memory that a supervised step writes from, where a captioner has several of a video."""
        return memory

    def earlier_memory(self, memory: MemoryT) -> MemoryT | None:  # noqa: ARG002
        """The same videos as an earlier pass read them, whose caption is told beside; None for one pass."""
        return None

    def own_loss(self, memory: MemoryT, targets: Tensor) -> OwnLoss | None:  # noqa: ARG002
        """A loss that takes the place of cross-entropy; None where there is no such loss.

        targets: (R, L) word ids, ended by <eos> and padded by -1, the captions of a video side by side.
        """
        return None

    def with_config(self, changes: Mapping[str, Any]) -> Self:
        """The same weights under a config with other values, in eval mode.

        Raises ValueError where the config has no member of that name.
        """
        if unknown := changes.keys() - type(self.config).model_fields.keys():
            raise ValueError(f"{self.name} has no {min(unknown)}")
        config = self.config_class.model_validate({**dict(self.config), **changes})
        other = type(self)(config, self.vocabulary)
        other.load_state_dict(self.state_dict())
        return other.eval()

    def explain(self, caption: CaptionSteps) -> Extras:  # noqa: ARG002
        """What its paper has beside the two maps; nothing by default."""
        return Extras()

    def map_edges(self, stream: str, side: int) -> Edges:
        """Where the rows, and columns, of its spatial attention lie in what the network saw.

        stream: the map that it attends to, side: how many rows its attention has.
        """
        return find_cell_edges(stream, side)

    def first_word(self, memory: MemoryT, rows_per_video: int) -> Tensor:
        """(R,) ids that the first step is given."""
        return torch.full((memory.size * rows_per_video,), BOS, dtype=torch.long, device=memory.times.device)


AnyCaptioner: TypeAlias = Captioner[Any, Any]
