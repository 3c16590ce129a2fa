"""Writes captions of a batch of streams: by one captioner, refocus's first step, or several together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from models.captioner import AnyCaptioner
from models.captioners.refocus.network import RefocusMemory
from models.captioners.semantic_embedding import SemanticEmbedding
from models.combining.ensemble import Ensemble
from models.combining.reranking import Reranker
from models.decoding.decode import DecodingOptions, Hypothesis, decode
from models.inputs import Batch, order_inputs
from models.likelihood import teacher_force
from models.memory import StepAttention
from models.vocabulary import EOS, pad_captions
from training.batches.loading import find_device, move_to

#: Beams in every reading, and the candidates that each member sends into a fusion. Words may return, as they
#: might when the tables in docs/results/ablations.md were made.
OPTIONS = DecodingOptions(beam_size=3, length_penalty=0.5, max_length=17, name_once=False, attention=False)

Words = tuple[str, ...]


class Reader(Protocol):
    """Writes captions of batches, one for each stream, of the same videos."""

    def write_captions(self, batches: Mapping[str, Batch]) -> list[Words]: ...


@dataclass(frozen=True, eq=False)
class SingleReader:
    """One captioner; with ``step_1`` refocus's caption from the middle frame."""

    captioner: AnyCaptioner
    step_1: bool = False

    def write_captions(self, batches: Mapping[str, Batch]) -> list[Words]:
        """Writes the best caption of each video."""
        hypotheses_by_video = decode(self.captioner, self._encode(batches), OPTIONS)
        return [_decode_words(self.captioner, hypotheses[0]) for hypotheses in hypotheses_by_video]

    def read_attention(self, batches: Mapping[str, Batch], captions: Sequence[Words]) -> list[StepAttention]:
        """Returns where the words of given captions look, one caption a video.

        Words that look nowhere are left out.
        """
        vocabulary = self.captioner.vocabulary
        targets = pad_captions([vocabulary.encode(words) for words in captions], OPTIONS.max_length)
        targets = move_to(targets, find_device(self.captioner))
        forced = teacher_force(self.captioner, self._encode(batches), targets)
        steps = [(place, step) for place, step in enumerate(forced.attentions) if step is not None]
        written = (targets > EOS)[:, [place for place, _ in steps]]
        temporal = torch.stack([step.temporal for _, step in steps], 1)
        extras = {
            name: torch.stack([step.extras[name] for _, step in steps], 1) for name in steps[0][1].extras
        }
        return [
            StepAttention(temporal[video][kept], None, {name: of[video][kept] for name, of in extras.items()})
            for video, kept in enumerate(written)
        ]

    def _encode(self, batches: Mapping[str, Batch]) -> Any:
        memory = self.captioner.encode_batches(order_inputs(self.captioner, batches))
        if not self.step_1:
            return memory
        if not isinstance(memory, RefocusMemory):
            raise TypeError(f"{self.captioner.name} has no first step; only refocus has")
        return memory.first_step()


@dataclass(frozen=True, eq=False)
class AveragedReader:
    """The mean of several captioners' probabilities at every word."""

    ensemble: Ensemble

    def write_captions(self, batches: Mapping[str, Batch]) -> list[Words]:
        """Writes the best caption of each video."""
        memory = self.ensemble.encode_batches(order_inputs(self.ensemble, batches))
        hypotheses_by_video = decode(self.ensemble, memory, OPTIONS)
        return [_decode_words(self.ensemble, hypotheses[0]) for hypotheses in hypotheses_by_video]


@dataclass(frozen=True, eq=False)
class RerankedReader:
    """All beams of several captioners, of which the video-semantic embedding picks one, as in the paper where
    the members' own likelihoods weigh nothing."""

    members: Mapping[str, AnyCaptioner]
    embedding: SemanticEmbedding
    likelihood_weight: float = 0.0

    def write_captions(self, batches: Mapping[str, Batch]) -> list[Words]:
        """Writes the caption of each video that is picked."""
        chosen = Reranker(self.members, self.embedding, self.likelihood_weight).caption_batches(
            batches, OPTIONS
        )
        return [each.best.words for each in chosen]


def _decode_words(captioner: AnyCaptioner, hypothesis: Hypothesis) -> Words:
    return tuple(captioner.vocabulary.decode(hypothesis.tokens))


def average_readers(captioners: Sequence[AnyCaptioner]) -> AveragedReader:
    """Joins captioners whose probabilities are averaged. Raises ValueError for different vocabularies."""
    return AveragedReader(Ensemble(captioners).eval())
