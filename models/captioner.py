"""Declares what every captioner does: encode features, start a state, take a step, and what training and the
service ask beside that.

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
from extractors.preprocessing.images import Edges, find_cell_edges
from models.caption import ChosenMoment, Extras
from models.vocabulary import BOS, Vocabulary

if TYPE_CHECKING:
    from models.inputs import Batch

Array: TypeAlias = NDArray[np.floating[Any]]
DIGITS = 5  #: of a weight that is shown: exact to the eye, and the document small


def _select(value: Any, index: Tensor) -> Any:
    if isinstance(value, Tensor):
        return value.index_select(0, index)
    if isinstance(value, TensorRows):
        return value.select(index)
    if isinstance(value, tuple):
        return tuple(_select(item, index) for item in value)
    if isinstance(value, Mapping):
        return {key: _select(item, index) for key, item in value.items()}
    return value


class TensorRows:
    """Selects rows of a dataclass whose tensors all have the rows (or the videos) as first axis."""

    def select(self, index: Tensor) -> Self:
        """Takes the rows at ``index`` (R',), in that order, repeats allowed."""
        values = {f.name: _select(getattr(self, f.name), index) for f in fields(self)}  # type: ignore[arg-type]
        return type(self)(**values)


@dataclass(frozen=True, eq=False)
class StepAttention(TensorRows):
    """Holds the attention of one step.

    Attributes:
        temporal: (R, T), sums to one over the valid rows of time.
        spatial: (R, T, N), sums to one over the cells or boxes of each time, or None.
        extras: The captioner's own tensors (R, …) under its own names.
        loss: (R,), what the captioner adds to the training loss at this step; None outside training.
    """

    temporal: Tensor
    spatial: Tensor | None
    extras: Mapping[str, Tensor]
    loss: Tensor | None = None


@dataclass(frozen=True, eq=False)
class State(TensorRows):
    """Carries what a captioner knows from word to word; the fields of subclasses are tensors (R, …)."""


@dataclass(frozen=True, eq=False)
class Memory(TensorRows):
    """Holds B encoded videos; the fields of subclasses are tensors (B, …). times: (B, T, 2) seconds."""

    times: Tensor

    @property
    def size(self) -> int:
        """B, the number of videos."""
        return int(self.times.shape[0])

    @property
    def moments(self) -> Tensor:
        """(B,), how many rows of ``times`` are each video's own; those of a batch's padding end at 0."""
        return (self.times[..., 1] > 0).sum(1).clamp(min=1)


@dataclass(frozen=True, eq=False)
class OwnLoss:
    """Holds a captioner's own supervised loss. total: to be descended. per_word: nats a word, for the log."""

    total: Tensor
    per_word: Tensor


@dataclass(frozen=True, eq=False)
class CaptionSteps:
    """Holds the steps of one caption, by which its captioner explains it.

    Attributes:
        steps: Tensors (words, …) as they were batched.
        memory: The batch's.
        video: The video's place in the batch.
        times: (T, 2) seconds, the video's own moments.
        regions: N, the video's own.
    """

    steps: StepAttention
    memory: Memory
    video: int
    times: NDArray[np.float64]
    regions: int

    def moment(self, row: int, weight: float) -> ChosenMoment:
        """Names row ``row`` of the captioner's clock, with the weight by which it was chosen."""
        time = round(float(self.times[row, 0]), 4)
        return ChosenMoment(moment=row, time=time, weight=round(weight, DIGITS))


def as_numpy(value: Tensor) -> NDArray[np.float64]:
    """Copies a tensor to float64 on the CPU."""
    return value.detach().to("cpu", torch.float64).numpy()


def rounded(values: Any, digits: int = DIGITS) -> Any:
    """Turns an array into nested lists, or a number, with as many digits as are shown."""
    return np.round(np.asarray(values, dtype=np.float64), digits).tolist()


def without_nothing(weights: Array) -> list[list[float] | None]:
    """Turns (words, n) into rows; None for a word whose weights are all zero, which had no attention."""
    return [rounded(row) if np.any(row) else None for row in weights]


#: Of functions that take a captioner and its memory.
MemoryT = TypeVar("MemoryT", bound=Memory)
StateT = TypeVar("StateT", bound=State)
# Covariant, so that each captioner, with a memory and a state of its own, is an ``AnyCaptioner``. A captioner
# is only ever given back what it made itself, which no type can say: hence ``ignore`` at each parameter below
# of these types.
MemoryT_co = TypeVar("MemoryT_co", bound=Memory, covariant=True)
StateT_co = TypeVar("StateT_co", bound=State, covariant=True)


class InputDescription(Protocol):
    """Names an input and says its width (numbers a row or cell)."""

    @property
    def name(self) -> str: ...

    @property
    def width(self) -> int: ...


class Captioner(nn.Module, ABC, Generic[MemoryT_co, StateT_co]):
    """Writes words from features.

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
        """Lists the streams that it reads, in the order of ``encode_batches``; each name once.

        Attention lies on the clock and in the places of the first.
        """

    @property
    def optional_streams(self) -> frozenset[str]:
        """Names those of ``inputs`` that any video may lack, such as its sound."""
        return frozenset()

    @abstractmethod
    def encode(self, features: Sequence[Features]) -> MemoryT_co:
        """Encodes features of B videos, padded together by masks."""

    @abstractmethod
    def encode_batches(self, batches: Sequence[Batch]) -> MemoryT_co:
        """Encodes B videos from one padded batch a stream, in the order of ``inputs``."""

    @abstractmethod
    def start(self, memory: MemoryT_co, rows_per_video: int) -> StateT_co:  # type: ignore[misc]
        """Makes the state before the first word, R = B · ``rows_per_video`` rows."""

    @abstractmethod
    def step(
        self,
        state: StateT_co,  # type: ignore[misc]
        word: Tensor,
        memory: MemoryT_co,  # type: ignore[misc]
    ) -> tuple[Tensor, StateT_co, StepAttention | None]:
        """Predicts the next word of R rows.

        Args:
            state: Of ``start``, or of the step before.
            word: (R,) ids just written.
            memory: B videos, as this captioner encoded them.

        Returns:
            Log-probabilities (R, V), the state behind ``word``, and the attention; None for a step that
            attended to nothing.
        """

    def embed_words(self, words: Tensor) -> Tensor:
        """Computes what ``advance`` takes of words, which no state changes: so of a whole caption at once.

        words: (…) ids. Returns (…, E); by default the ids, for a captioner that has nothing to share.
        """
        return words

    def advance(
        self,
        state: StateT_co,  # type: ignore[misc]
        embedded: Tensor,
        memory: MemoryT_co,  # type: ignore[misc]
    ) -> tuple[Tensor, StateT_co, StepAttention | None]:
        """Takes ``step`` without scoring the vocabulary.

        Args:
            state: Of ``start``, or of the step before.
            embedded: (R, E), the words just written, by ``embed_words``.
            memory: B videos, as this captioner encoded them.

        Returns:
            What ``score_words`` takes (R, …), the state behind the word, and the attention.
        """
        return self.step(state, embedded, memory)

    def score_words(self, output: Tensor) -> Tensor:
        """Computes log-probabilities (N, V) of what ``advance`` returned for N rows, of any steps."""
        return output

    @property
    def training_phases(self) -> tuple[str, ...]:
        """Names the phases of its own that training/optimization/refocus_phases.py goes through behind
        cross-entropy, in their order."""
        return ()

    def at_start_of(self, phase: str) -> Self:  # noqa: ARG002
        """Makes the captioner that goes through one of its ``training_phases``."""
        return self

    def memory_to_learn_from(
        self,
        memory: MemoryT_co,  # type: ignore[misc]
        generator: torch.Generator,  # noqa: ARG002
    ) -> MemoryT_co:
        """Chooses the memory that a supervised step writes from, where a captioner has several of a video."""
        return memory

    def earlier_memory(self, memory: MemoryT_co) -> MemoryT_co | None:  # type: ignore[misc]  # noqa: ARG002
        """Gives the videos as an earlier pass read them, whose caption is told beside; None for one pass."""
        return None

    def own_loss(
        self,
        memory: MemoryT_co,  # type: ignore[misc]  # noqa: ARG002
        targets: Tensor,  # noqa: ARG002
    ) -> OwnLoss | None:
        """Computes a loss that takes the place of cross-entropy; None where there is no such loss.

        targets: (R, L) word ids, ended by <eos> and padded by -1, the captions of a video side by side.
        """
        return None

    def with_config(self, changes: Mapping[str, object]) -> Self:
        """Copies the weights under a config with other values, in eval mode.

        Raises ValueError where the config has no member of that name.
        """
        if unknown := changes.keys() - type(self.config).model_fields.keys():
            raise ValueError(f"{self.name} has no {min(unknown)}")
        config = self.config_class.model_validate({**dict(self.config), **changes})
        other = type(self)(config, self.vocabulary)
        other.load_state_dict(self.state_dict())
        return other.eval()

    def explain(self, caption: CaptionSteps) -> Extras:  # noqa: ARG002
        """Tells what its paper has beside the two maps; nothing by default."""
        return Extras()

    def map_edges(self, stream: str, side: int) -> Edges:
        """Says where the rows, and columns, of its spatial attention lie in what the network saw.

        stream: the map that it attends to, side: how many rows its attention has.
        """
        return find_cell_edges(stream, side)

    def first_word(self, memory: MemoryT_co, rows_per_video: int) -> Tensor:  # type: ignore[misc]
        """Makes the (R,) ids that the first step is given."""
        return torch.full((memory.size * rows_per_video,), BOS, dtype=torch.long, device=memory.times.device)


#: A captioner of whichever class.
AnyCaptioner: TypeAlias = Captioner[Memory, State]
