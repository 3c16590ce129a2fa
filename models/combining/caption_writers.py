"""Writes captions with one captioner, or with several as one.

Fused: each member writes its beams, and models/combining/reranking.py picks among all of them.
Averaged: at every word the mean of the members' probabilities (models/combining/ensemble.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Protocol

import torch

from extractors.errors import ReelwordError
from extractors.features import Features, StreamSpec
from models.caption import CandidateCaption, Caption
from models.captioners.semantic_embedding import SemanticEmbedding
from models.checkpoint import Card, Checkpoint
from models.combining.ensemble import Ensemble, EnsembleMemory
from models.combining.members import ENSEMBLE, FUSION
from models.combining.reranking import (
    LIKELIHOOD_WEIGHT,
    Candidate,
    MemberOutput,
    RankedCandidates,
    Reranker,
)
from models.decoding.decode import DecodingOptions
from models.decoding.written_captions import DecodedBatch, join
from models.feature_sources.stream_checks import StreamMismatch, caption, check_streams, lead_stream

CANDIDATES = 5  #: captions that each member sends into a fusion, or as many as its beam has


class VocabulariesDiffer(ReelwordError, ValueError):
    """Members whose probabilities were to be averaged know different words; the message says whose."""

    code = "vocabularies_differ"
    hint = "Combine captioners that were trained on one vocabulary, or let fusion choose among them."


class Writer(Protocol):
    """Writes captions from features. streams: what it has to be given."""

    @property
    def streams(self) -> Mapping[str, StreamSpec]: ...

    def caption(self, features: Sequence[Features], options: DecodingOptions) -> list[list[Caption]]:
        """Writes for each video its best ``options.num_captions`` captions, best first.

        Raises StreamMismatch.
        """
        ...


@dataclass(frozen=True, eq=False)
class SingleWriter:
    """Writes with one captioner."""

    checkpoint: Checkpoint

    @property
    def streams(self) -> Mapping[str, StreamSpec]:
        return self.checkpoint.card.streams

    def caption(self, features: Sequence[Features], options: DecodingOptions) -> list[list[Caption]]:
        return caption(self.checkpoint, features, options)


@dataclass(frozen=True, eq=False)
class FusedWriter:
    """Writes with members of any vocabularies, and an embedding that picks with them among their beams."""

    kind: ClassVar[str] = FUSION
    members: Mapping[str, Checkpoint]
    embedding: SemanticEmbedding
    embedding_card: Card
    likelihood_weight: float = LIKELIHOOD_WEIGHT

    @property
    def streams(self) -> Mapping[str, StreamSpec]:
        """Lists what all take. Raises StreamMismatch where two members want different streams of one name."""
        return streams_of([*(each.card for each in self.members.values()), self.embedding_card])

    def caption(self, features: Sequence[Features], options: DecodingOptions) -> list[list[Caption]]:
        for video in features:
            for member in self.members.values():
                check_streams(member, video)
        each = replace(options, num_captions=min(CANDIDATES, options.beam_size))
        written = {
            name: DecodedBatch.by(member.captioner, features, lead_stream(member), each)
            for name, member in self.members.items()
        }
        with torch.inference_mode():
            seen = {
                name: MemberOutput(of_member.memory, of_member.hypotheses)
                for name, of_member in written.items()
            }
            fused = self._fusion.rerank(self.embedding.encode(features), seen)
        return [self._to_caption(written, video, found, options) for video, found in enumerate(fused)]

    @cached_property
    def _fusion(self) -> Reranker:
        captioners = {name: each.captioner for name, each in self.members.items()}
        return Reranker(captioners, self.embedding, self.likelihood_weight)

    def _to_caption(
        self,
        written: Mapping[str, DecodedBatch],
        video: int,
        found: RankedCandidates,
        options: DecodingOptions,
    ) -> list[Caption]:
        """Picks the best captions of one video; the first has its attention, and all candidates beside it."""
        best, *others = found.candidates[: options.num_captions]
        winner = written[best.captioner].caption(video, best.hypothesis)
        candidates = [_candidate_caption(candidate) for candidate in found.candidates]
        return [
            _with_extras(winner, candidates=candidates),
            *(written[each.captioner].caption_alone(each.hypothesis) for each in others),
        ]


@dataclass(frozen=True, eq=False)
class AveragedWriter:
    """Writes with members of one vocabulary. Attention is the first one's, or the mean where all are alike.

    Raises VocabulariesDiffer.
    """

    kind: ClassVar[str] = ENSEMBLE
    members: Mapping[str, Checkpoint]

    def __post_init__(self) -> None:
        first, *others = self.members
        for name in others:
            if vocabulary_of(self.members[name]) != vocabulary_of(self.members[first]):
                raise VocabulariesDiffer(f"{first} and {name} were trained on different vocabularies")

    @property
    def streams(self) -> Mapping[str, StreamSpec]:
        """Lists what all take. Raises StreamMismatch where two members want different streams of one name."""
        return streams_of([each.card for each in self.members.values()])

    def caption(self, features: Sequence[Features], options: DecodingOptions) -> list[list[Caption]]:
        for video in features:
            for member in self.members.values():
                check_streams(member, video)
        first = next(iter(self.members.values()))
        written = DecodedBatch.by(self._ensemble, features, lead_stream(first), options)
        assert isinstance(written.memory, EnsembleMemory)
        reported = replace(written, captioner=first.captioner, memory=written.memory.members[0])
        return [
            [_with_extras(each, **self._own_extras) for each in reported.captions(video)]
            for video in range(len(features))
        ]

    @cached_property
    def _ensemble(self) -> Ensemble:
        return Ensemble([member.captioner for member in self.members.values()])

    @property
    def _own_extras(self) -> dict[str, object]:
        """Names the members; what refocus writes alone is not what the ensemble wrote."""
        return {"members": list(self.members), "step_1": None, "step_2": None}


def vocabulary_of(checkpoint: Checkpoint) -> tuple[str, ...]:
    words: tuple[str, ...] = checkpoint.captioner.vocabulary.words
    return words


def streams_of(cards: Sequence[Card]) -> dict[str, StreamSpec]:
    """Lists the streams that any of them takes. Raises StreamMismatch where one name stands for two."""
    found: dict[str, StreamSpec] = {}
    for card in cards:
        for name, spec in card.streams.items():
            if found.setdefault(name, spec).identity != spec.identity:
                raise StreamMismatch(
                    f"the stream {name!r} of {card.captioner} is made by {spec.network} "
                    f"({spec.weights_sha256[:12]}), another member's by {found[name].network} "
                    f"({found[name].weights_sha256[:12]})"
                )
    return found


def _candidate_caption(candidate: Candidate) -> CandidateCaption:
    return CandidateCaption(
        captioner=candidate.captioner,
        beam=candidate.beam,
        text=join(candidate.words),
        score=round(candidate.hypothesis.score, 5),
        relevance=round(candidate.relevance, 5),
        likelihood=round(candidate.likelihood, 5),
        merit=round(candidate.merit, 5),
    )


def _with_extras(found: Caption, **extras: object) -> Caption:
    """Adds what its writer shows to a caption; one without attention shows nothing."""
    attention = found.attention
    if attention is None:
        return found
    more = attention.model_copy(update={"extras": attention.extras.model_copy(update=extras)})
    return found.model_copy(update={"attention": more})
