"""Writes captions with one captioner, or with several as one.

Fused: each member writes its beams, and models/combining/reranking.py picks among all of them.
Averaged: at every word the mean of the members' probabilities (models/combining/ensemble.py).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeAlias

import torch

from extractors.errors import ReelwordError
from extractors.features import Features, Frames, StreamSpec
from models.caption import (
    Caption,
    ExplanationPart,
    TableColumn,
    TableExplanation,
    TableRow,
    TextExplanation,
    join_words,
)
from models.captioners.semantic_embedding import SemanticEmbedding
from models.checkpoint import Card, Checkpoint
from models.combining.ensemble import Ensemble, EnsembleMemory
from models.combining.members import ENSEMBLE, FUSION
from models.combining.pretrained_members import PretrainedOutput
from models.combining.reranking import (
    LIKELIHOOD_WEIGHT,
    Candidate,
    DecodedOutput,
    MemberOutput,
    rank_candidates,
)
from models.decoding.decode import DecodingOptions
from models.decoding.written_captions import DecodedBatch
from models.feature_sources.stream_checks import StreamMismatch, check_streams, lead_stream

if TYPE_CHECKING:
    from models.pretrained.load import AnyPretrainedCaptioner

#: One of ours, or one that reads frames.
FusionMember: TypeAlias = "Checkpoint | AnyPretrainedCaptioner"
#: Of what is shown of a fusion.
CANDIDATE_COLUMNS = [
    TableColumn(name="captioner", title="captioner", role="aside"),
    TableColumn(name="beam", title="beam", role="aside"),
    TableColumn(name="text", title="caption", role="text"),
    TableColumn(name="score", title="its captioner's score", role="data"),
    TableColumn(name="relevance", title="relevance to the film", role="data"),
    TableColumn(name="likelihood", title="likelihood by all members", role="data"),
    TableColumn(name="merit", title="merit", role="measure"),
]
CANDIDATES = 5  #: captions that each member sends into a fusion, or as many as its beam has


class VocabulariesDiffer(ReelwordError, ValueError, code="vocabularies_differ"):
    """Members whose probabilities were to be averaged know different words; the message says whose."""

    hint = "Combine captioners that were trained on one vocabulary, or let fusion choose among them."


class Writer(Protocol):
    """Writes captions from features. streams: what it has to be given."""

    @property
    def streams(self) -> Mapping[str, StreamSpec]: ...

    def caption(self, features: Sequence[Features], options: DecodingOptions) -> list[list[Caption]]:
        """Writes for each video its best ``options.num_captions`` captions, best first.

        Raises StreamMismatch.
        """


@dataclass(frozen=True, eq=False)
class SingleWriter:
    """Writes with one captioner."""

    checkpoint: Checkpoint

    @property
    def streams(self) -> Mapping[str, StreamSpec]:
        return self.checkpoint.card.streams

    def caption(self, features: Sequence[Features], options: DecodingOptions) -> list[list[Caption]]:
        for video in features:
            check_streams(self.checkpoint, video)
        lead = lead_stream(self.checkpoint)
        written = DecodedBatch.by(self.checkpoint.captioner, features, lead, options)
        return [written.captions(video) for video in range(len(features))]


@dataclass(frozen=True, eq=False)
class FusedWriter:
    """Writes with members of any kind, and an embedding that picks with them among their beams."""

    kind: ClassVar[str] = FUSION
    members: Mapping[str, FusionMember]
    embedding: SemanticEmbedding
    embedding_card: Card
    likelihood_weight: float = LIKELIHOOD_WEIGHT

    @property
    def streams(self) -> Mapping[str, StreamSpec]:
        """Lists what all take. Raises StreamMismatch where two members want different streams of one name."""
        return streams_of([*(each.card for each in self._checkpoints), self.embedding_card])

    @property
    def pretrained(self) -> dict[str, "AnyPretrainedCaptioner"]:
        """Lists the members that read frames."""
        return {name: each for name, each in self.members.items() if not isinstance(each, Checkpoint)}

    def caption(self, features: Sequence[Features], options: DecodingOptions) -> list[list[Caption]]:
        """Writes with members that read streams alone. Raises StreamMismatch, ValueError for any other."""
        if pretrained := list(self.pretrained):
            raise ValueError(f"{pretrained[0]} reads frames, which caption_frames takes beside streams")
        return self.caption_frames([], features, options)

    def caption_frames(
        self, frames: Sequence[Frames], features: Sequence[Features], options: DecodingOptions
    ) -> list[list[Caption]]:
        """Writes for each video its best captions, best first.

        Args:
            frames: Of each of B videos; read by pretrained members alone.
            features: Of each its streams by name.
            options: How captions are searched.

        Returns:
            For each video ``options.num_captions`` captions, or as many as members wrote; the first has its
            writer's attention.

        Raises:
            StreamMismatch: A stream is missing, or not what a member was trained on.
            OptionRefused: An option that a pretrained member does not have.
        """
        for video in features:
            for member in self._checkpoints:
                check_streams(member, video)
        most = {"beam": options.beam_size, "greedy": 1}.get(options.method, CANDIDATES)
        each = options.changed(num_captions=min(CANDIDATES, most))
        written: dict[str, MemberOutput] = {
            name: DecodedOutput(DecodedBatch.by(member.captioner, features, lead_stream(member), each))
            if isinstance(member, Checkpoint)
            else PretrainedOutput.by(member, frames, each)
            for name, member in self.members.items()
        }
        with torch.inference_mode():
            videos = self.embedding.encode(features)
            weight = 0.0 if options.fusion_rule == "relevance" else self.likelihood_weight
            fused = rank_candidates(self.embedding, videos, written, weight)
        return [_to_captions(written, video, ranked, options) for video, ranked in enumerate(fused)]

    @property
    def _checkpoints(self) -> list[Checkpoint]:
        return [each for each in self.members.values() if isinstance(each, Checkpoint)]


@dataclass(frozen=True, eq=False)
class AveragedWriter:
    """Writes with members of one vocabulary. Attention is the first one's, or the mean where all are alike.

    Raises VocabulariesDiffer.
    """

    kind: ClassVar[str] = ENSEMBLE
    members: Mapping[str, Checkpoint]

    def __post_init__(self) -> None:
        words_of = {name: each.captioner.vocabulary.words for name, each in self.members.items()}
        first, *others = words_of
        for name in others:
            if words_of[name] != words_of[first]:
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
        reported = replace(
            written, captioner=first.captioner, memory=written.memory.members[0], author=self._ensemble
        )
        return [
            [_with_part(each, self._explain_members()) for each in reported.captions(video)]
            for video in range(len(features))
        ]

    @cached_property
    def _ensemble(self) -> Ensemble:
        return Ensemble([member.captioner for member in self.members.values()])

    def _explain_members(self) -> TextExplanation:
        first, names = next(iter(self.members)), list(self.members)
        listed = f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else first
        return TextExplanation(
            name="members",
            title="Written together",
            caption=f"{listed} agreed on every word. Where it looked is shown as {first} saw it.",
            items=names,
        )


def streams_of(cards: Sequence[Card]) -> dict[str, StreamSpec]:
    """Lists the streams that any of them takes. Raises StreamMismatch where one name stands for two."""
    streams: dict[str, StreamSpec] = {}
    for card in cards:
        for name, spec in card.streams.items():
            if streams.setdefault(name, spec).identity != spec.identity:
                raise StreamMismatch(
                    f"the stream {name!r} of {card.captioner} is made by {spec.network} "
                    f"({spec.weights_sha256[:12]}), another member's by {streams[name].network} "
                    f"({streams[name].weights_sha256[:12]})"
                )
    return streams


def _to_captions(
    written: Mapping[str, MemberOutput], video: int, ranked: list[Candidate], options: DecodingOptions
) -> list[Caption]:
    """Picks the best captions of one video; the first has its attention, and all candidates beside it."""
    best, *others = ranked[: options.num_captions]
    winner = written[best.captioner].caption(video, best, with_attention=True)
    return [
        _with_part(winner, _explain_candidates(ranked)),
        *(written[each.captioner].caption(video, each, with_attention=False) for each in others),
    ]


def _explain_candidates(candidates: Sequence[Candidate]) -> TableExplanation:
    """Shows all that competed, the best first."""
    return TableExplanation(
        name="candidates",
        title="Captions that competed",
        note="Several captioners wrote; the caption that fits the film best, and that all of them find "
        "likely, won. The maps are the winner's.",
        columns=CANDIDATE_COLUMNS,
        caption=[_describe_candidate(candidate) for candidate in candidates],
    )


def _describe_candidate(candidate: Candidate) -> TableRow:
    return {
        "captioner": candidate.captioner,
        "beam": candidate.beam,
        "text": join_words(candidate.words) if candidate.text is None else candidate.text,
        "score": round(candidate.hypothesis.score, 5),
        "relevance": round(candidate.relevance, 5),
        "likelihood": round(candidate.likelihood, 5),
        "merit": round(candidate.merit, 5),
    }


def _with_part(caption: Caption, part: ExplanationPart) -> Caption:
    """Adds a part to what a caption's attention shows; one without attention shows nothing."""
    attention = caption.attention
    if attention is None:
        return caption
    more = attention.model_copy(update={"extras": [*attention.extras, part]})
    return caption.model_copy(update={"attention": more})
