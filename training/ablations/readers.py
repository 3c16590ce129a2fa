"""From a batch of streams to captions: one captioner, refocus's first step, or several together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from models.captioner import Captioner, StepAttention
from models.collate import Batch
from models.decoding import DecodingOptions, Hypothesis, decode
from models.ensemble import Ensemble
from models.fusion import Fusion, SemanticEmbedding
from models.refocus import RefocusMemory

#: Beams in every reading, and the candidates that each member sends into a fusion.
OPTIONS = DecodingOptions(beam_size=3, length_penalty=0.5, max_length=17)


@dataclass(frozen=True, eq=False)
class Answer:
    """One caption, and where each word looked; None for what several wrote together."""

    words: tuple[str, ...]
    attention: StepAttention | None


class Reader(Protocol):
    """batches: a batch for each stream, of the same videos."""

    def answers(self, batches: Mapping[str, Batch]) -> list[Answer]: ...


@dataclass(frozen=True, eq=False)
class Alone:
    """One captioner; with ``step_1`` refocus's caption from the middle frame."""

    captioner: Captioner[Any, Any]
    step_1: bool = False

    def answers(self, batches: Mapping[str, Batch]) -> list[Answer]:
        memory = encoded(self.captioner, batches)
        if self.step_1:
            if not isinstance(memory, RefocusMemory):
                raise TypeError(f"{self.captioner.name} has no first step; only refocus has")
            memory = memory.first_step()
        found = decode(self.captioner, memory, OPTIONS)
        return [_answer(self.captioner, hypotheses[0]) for hypotheses in found]


@dataclass(frozen=True, eq=False)
class Averaged:
    """The mean of several captioners' probabilities at every word."""

    ensemble: Ensemble

    def answers(self, batches: Mapping[str, Batch]) -> list[Answer]:
        members: list[Any] = list(self.ensemble.members)
        memory = self.ensemble.together([encoded(member, batches) for member in members])
        found = decode(self.ensemble, memory, replace(OPTIONS, attention=False))
        return [_answer(self.ensemble, hypotheses[0]) for hypotheses in found]


@dataclass(frozen=True, eq=False)
class Fused:
    """All beams of several captioners, of which the video-semantic embedding picks one."""

    members: Mapping[str, Captioner[Any, Any]]
    embedding: SemanticEmbedding

    def answers(self, batches: Mapping[str, Batch]) -> list[Answer]:
        options = replace(OPTIONS, num_captions=OPTIONS.beam_size, attention=False)
        written = {
            name: decode(member, encoded(member, batches), options) for name, member in self.members.items()
        }
        videos = self.embedding.encode_batches([batches[s.name] for s in self.embedding.config.streams])
        chosen = Fusion(self.members, self.embedding).choose(videos, written)
        return [Answer(each.best.words, None) for each in chosen]


def encoded(captioner: Any, batches: Mapping[str, Batch]) -> Any:
    """The captioner's memory of its own streams."""
    return captioner.encode_batches([batches[stream.name] for stream in captioner.config.streams])


def reread(captioner: Any, config: Mapping[str, Any]) -> Captioner[Any, Any]:
    """The same weights under another config, to be evaluated. Raises RuntimeError where they do not fit."""
    made = type(captioner)(captioner.config.model_copy(update=dict(config)), captioner.vocabulary)
    made.load_state_dict(captioner.state_dict())
    read: Captioner[Any, Any] = made.eval()
    return read


def _answer(captioner: Captioner[Any, Any], hypothesis: Hypothesis) -> Answer:
    return Answer(tuple(captioner.vocabulary.decode(hypothesis.tokens)), hypothesis.attention)


def joined(captioners: Sequence[Captioner[Any, Any]]) -> Averaged:
    """Raises ValueError where their vocabularies differ."""
    return Averaged(Ensemble(captioners).eval())
