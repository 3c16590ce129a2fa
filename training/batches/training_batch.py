"""Defines a batch as training steps take it, and the order in which batches come."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Generic, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from models.captioner import Captioner
from models.captioners.semantic_embedding import SemanticEmbedding
from models.inputs import Batch, order_inputs
from models.memory import TensorRows
from models.vocabulary import Vocabulary
from training.batches.forcing_plan import ForcingPlan


class CaptionedItem(Protocol):
    """A picture or video with its captions as words."""

    @property
    def id(self) -> str: ...

    @property
    def captions(self) -> Sequence[Sequence[str]]: ...


ValueT = TypeVar("ValueT")
ItemT = TypeVar("ItemT", bound=CaptionedItem)
ItemT_co = TypeVar("ItemT_co", bound=CaptionedItem, covariant=True)


@dataclass(frozen=True, eq=False)
class TeacherTargets(TensorRows):
    """A teacher's most probable words at every place of a batch's captions."""

    words: Tensor  #: (R, L, k) ids
    shares: Tensor  #: (R, L, k) of a probability of one; 0 where a caption has ended

    def loss(self, log_probs: Tensor, place: int) -> Tensor:
        """Computes (R,) cross-entropy in nats of log_probs (R, V) against the teacher at word ``place``."""
        shares = self.shares[:, place]
        kept = (shares * log_probs.gather(1, self.words[:, place])).sum(1)
        return -kept - (1 - shares.sum(1)) * log_probs.mean(1)


@dataclass(frozen=True, eq=False)
class TrainingBatch:
    """B videos, one batch a stream, and K captions of each: targets (B·K, L)."""

    ids: tuple[str, ...]
    batches: Mapping[str, Batch]
    targets: Tensor
    #: bool (B, T), the steps that the captions are of, None where that is all of them
    true_steps: Tensor | None
    soft: TeacherTargets | None = None  #: a teacher's words in every place of the captions
    places: tuple[int, ...] = ()  #: for each target which of its video's captions it is
    plan: ForcingPlan | None = None  #: of the targets; None where a loss makes its own

    def inputs_of(self, network: Captioner | SemanticEmbedding) -> list[Batch]:
        """Returns what the ``encode_batches`` of a captioner or an embedding takes."""
        return order_inputs(network.inputs, self.batches)


@dataclass(frozen=True)
class BatchPart:
    """One of ``count`` nearly equal parts of a batch, ``number`` from 0: neighbouring videos."""

    number: int = 0
    count: int = 1

    def of(self, values: Sequence[ValueT], rows: int = 1) -> Sequence[ValueT]:
        """Takes the part's values. rows: how many values stand side by side for a video."""
        videos = len(values) // rows
        first, last = (videos * place // self.count for place in (self.number, self.number + 1))
        return values[first * rows : last * rows]

    def divide(self, number: int, count: int) -> Self:
        """Returns one of ``count`` parts of this part, ``number`` from 0."""
        return type(self)(self.number * count + number, self.count * count)


WHOLE_BATCH = BatchPart()


@dataclass(frozen=True, eq=False)
class TrainingBatches(ABC, Generic[ItemT_co]):
    """An endless, resumable order of batches: batch ``step`` is a function of the seed and ``step`` alone."""

    items: Sequence[ItemT_co]
    vocabulary: Vocabulary
    videos: int  #: items a batch, all there are where they are fewer
    captions: int  #: drawn of each
    max_length: int  #: words of a caption, its end among them; longer ones are cut
    seed: int
    keep_end: bool = field(default=False, kw_only=True)  #: whether what is cut is ended all the same
    #: Whether an epoch is every caption once, each with its video, where one of each is drawn; else it is
    #: every item once, with as many of its captions as are drawn.
    every_caption: bool = field(default=False, kw_only=True)
    #: What is made of each batch, where several processes share them; what is drawn for an item does not
    #: depend on it.
    part: BatchPart = field(default=WHOLE_BATCH, kw_only=True)

    @property
    def steps_per_epoch(self) -> int:
        if self._takes_pairs:
            return -(-len(self._pairs) // self.videos)
        return max(1, len(self.items) // self.videos)

    @abstractmethod
    def at(self, step: int) -> TrainingBatch:
        """Makes batch ``step``."""

    def with_captions(self, count: int) -> Self:
        """Returns the same order with so many captions an item."""
        return replace(self, captions=count)

    @property
    def _takes_pairs(self) -> bool:
        return self.every_caption and self.captions == 1

    @cached_property
    def _pairs(self) -> NDArray[np.int64]:
        """The places (captions, 2) of all items with those of their captions."""
        return np.array([(i, k) for i, item in enumerate(self.items) for k in range(len(item.captions))])

    def _choose_captions(self, step: int) -> list[tuple[ItemT_co, list[int]]]:
        """Returns the items of batch ``step``, each with the places of its captions that are taken."""
        if not self._takes_pairs:
            chosen, rng = self._choose(step)
            return [(item, self._draw_captions(item, rng)) for item in chosen]
        epochs, places = np.divmod(step * self.videos + np.arange(self.videos), len(self._pairs))
        orders = {
            epoch: np.random.default_rng((self.seed, 3, epoch)).permutation(self._pairs)
            for epoch in np.unique(epochs).tolist()
        }
        pairs = [orders[epoch][place] for epoch, place in zip(epochs.tolist(), places, strict=True)]
        return [(self.items[i], [int(k)]) for i, k in pairs]

    def _choose(self, step: int) -> tuple[list[ItemT_co], np.random.Generator]:
        """Returns the items of batch ``step``, and the generator that decides all else of it."""
        epoch, place = divmod(step, self.steps_per_epoch)
        order = np.random.default_rng((self.seed, 1, epoch)).permutation(len(self.items))
        chosen = [self.items[i] for i in order[place * self.videos : (place + 1) * self.videos]]
        return chosen, np.random.default_rng((self.seed, 2, step))

    def _draw_captions(self, item: CaptionedItem, rng: np.random.Generator) -> list[int]:
        """Returns the places of the item's captions that are taken; repeated where it has too few."""
        repeats = self.captions > len(item.captions)
        places: list[int] = rng.choice(len(item.captions), self.captions, replace=repeats).tolist()
        return places
