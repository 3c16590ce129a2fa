"""Decodes several checkpoints as one captioner: at every word the average of their probabilities."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from pydantic import BaseModel
from torch import Tensor, nn

from extractors.features import Features
from models.captioner import Captioner
from models.inputs import Batch, InputStream, order_inputs
from models.memory import Memory, State, StepAttention


class EnsembleConfig(BaseModel, frozen=True):
    """Has nothing to configure: each member has its own."""


@dataclass(frozen=True, eq=False)
class EnsembleMemory(Memory):
    """Holds each member's memory of the same videos. ``times`` are the first member's."""

    members: tuple[Memory, ...]

    @property
    def moments(self) -> Tensor:
        return self.members[0].moments


@dataclass(frozen=True, eq=False)
class EnsembleState(State):
    """Holds each member's state."""

    members: tuple[State, ...]


class Ensemble(Captioner):
    """Averages captioners of one vocabulary.

    Attention is averaged where all members are of one class and configuration; otherwise it is the first
    member's, since the others' maps may lie on other clocks and grids.
    """

    name = "ensemble"
    config_class = EnsembleConfig

    def __init__(self, members: Sequence[Captioner]) -> None:
        """Raises ValueError for no members, and for members of several vocabularies."""
        if not members:
            raise ValueError("an ensemble needs at least one captioner")
        super().__init__(EnsembleConfig(), members[0].vocabulary)
        if any(member.vocabulary.words != self.vocabulary.words for member in members):
            raise ValueError("the members of an ensemble must share one vocabulary")
        self.members = nn.ModuleList(members)
        self._alike = len({(type(m), m.config.model_dump_json()) for m in members}) == 1

    @property
    def inputs(self) -> Sequence[InputStream]:
        """Lists every member's, each once; the first member's lead."""
        members = self._captioners()
        return tuple({each.name: each for member in members for each in member.inputs}.values())

    @property
    def optional_streams(self) -> frozenset[str]:
        return frozenset().union(*(member.optional_streams for member in self._captioners()))

    @property
    def needs_all_cells(self) -> bool:
        return any(each.needs_all_cells for each in self._captioners())

    def encode(self, features: Sequence[Features]) -> EnsembleMemory:
        return self.join_memories([member.encode(features) for member in self._captioners()])

    def encode_batches(self, batches: Sequence[Batch]) -> EnsembleMemory:
        by_name = dict(zip((each.name for each in self.inputs), batches, strict=True))
        return self.join_memories(
            [m.encode_batches(order_inputs(m.inputs, by_name)) for m in self._captioners()]
        )

    def join_memories(self, memories: Sequence[Memory]) -> EnsembleMemory:
        """Joins memories of the same videos, one a member."""
        return EnsembleMemory(memories[0].times, tuple(memories))

    def start(self, memory: EnsembleMemory, rows_per_video: int) -> EnsembleState:
        pairs = zip(self._captioners(), memory.members, strict=True)
        return EnsembleState(
            tuple(member.start(member_memory, rows_per_video) for member, member_memory in pairs)
        )

    def first_word(self, memory: EnsembleMemory, rows_per_video: int) -> Tensor:
        return self._captioners()[0].first_word(memory.members[0], rows_per_video)

    def step(
        self, state: EnsembleState, word: Tensor, memory: EnsembleMemory
    ) -> tuple[Tensor, EnsembleState, StepAttention | None]:
        triples = zip(self._captioners(), state.members, memory.members, strict=True)
        log_probs, states, attentions = zip(*(m.step(s, word, part) for m, s, part in triples), strict=True)
        # rounding can lift a certain word above probability one, which early stopping relies on not to be
        mean = (torch.stack(log_probs) - math.log(len(log_probs))).logsumexp(0).clamp(max=0)
        return mean, EnsembleState(states), self._average(attentions)

    def _captioners(self) -> list[Captioner]:
        return [member for member in self.members if isinstance(member, Captioner)]

    def _average(self, attentions: Sequence[StepAttention | None]) -> StepAttention | None:
        """Returns the mean where members are alike and all attended, else the first member's."""
        first, every = attentions[0], [each for each in attentions if each is not None]
        if first is None or not self._alike or len(every) < len(attentions):
            return first
        spatial = [each.spatial for each in every if each.spatial is not None]
        return StepAttention(
            temporal=_mean([each.temporal for each in every]),
            spatial=_mean(spatial) if len(spatial) == len(every) else first.spatial,
            extras={name: _mean([each.extras[name] for each in every]) for name in first.extras},
        )


def _mean(values: list[Tensor]) -> Tensor:
    return torch.stack(values).mean(0)
