"""Who is scored: one captioner, or several combined as the service combines them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from extractors.sampling import FRAMES
from models.checkpoint import Checkpoint, find_embedding, load_captioner, load_embedding
from models.combining.caption_writers import AveragedWriter, FusedWriter, SingleWriter, Writer
from models.combining.members import WrongMembers, check_members, choose_members, describe_files
from models.feature_sources.feature_source import (
    CombinedFeatureSource,
    ExtractorPool,
    FeatureSource,
    build_feature_source,
)
from models.feature_sources.stream_checks import check_extractors, select_stream_set
from models.feature_sources.stream_sets import StreamSet

Branches = Literal["stats", "st", "ts"]
COMBINED = (FusedWriter.kind, AveragedWriter.kind)


@dataclass(frozen=True, eq=False)
class EvaluatedCaptioner:
    """Who writes, and what turns frames into what they read."""

    writer: Writer
    feature_source: FeatureSource | CombinedFeatureSource


def evaluated_captioner(
    name: str,
    members: Sequence[str] | None = None,
    streams: str | None = None,
    branches: Branches | None = None,
    frames: int = FRAMES,
) -> EvaluatedCaptioner:
    """A captioner by name or checkpoint, or "fusion" or "ensemble" of ``members``.

    members: names or checkpoints, by default those of the service. streams: a stream set, by default the
    captioner's own. frames: spread over a clip. Raises UnknownCaptioner, UnknownStreamSet, StreamMismatch,
    CheckpointError, WrongMembers, VocabulariesDiffer.
    """
    if name in COMBINED:
        return _combined(name, {each: load_captioner(each) for each in _members(name, members)}, frames)
    if members is not None:
        raise WrongMembers(f"{name} is one captioner; members are combined by {' or '.join(COMBINED)}")
    checkpoint = load_captioner(name)
    if branches is not None:
        checkpoint = with_branches(checkpoint, branches)
    source = FeatureSource(select_stream_set(checkpoint.card, streams), frames=frames)
    check_extractors(checkpoint, source.wanted, source.extractors)
    return EvaluatedCaptioner(SingleWriter(checkpoint), source)


def _members(kind: str, named: Sequence[str] | None) -> Sequence[str]:
    if named is not None:
        return check_members(named)
    found = [each.name for each in choose_members(kind, describe_files())]
    if not found:
        wanted = "two captioners of one vocabulary" if kind == AveragedWriter.kind else "a captioner"
        raise WrongMembers(f"{kind} needs {wanted}; train one with `python -m app train stats`")
    return found


def _combined(kind: str, members: dict[str, Checkpoint], frames: int) -> EvaluatedCaptioner:
    sets: list[StreamSet] = [select_stream_set(member.card) for member in members.values()]
    if kind == AveragedWriter.kind:
        writer: Writer = AveragedWriter(members)
    else:
        path = find_embedding()
        if path is None:
            raise WrongMembers(
                "fusion needs the semantic embedding: `python -m app train semantic_embedding`"
            )
        embedding, card = load_embedding(path)
        writer = FusedWriter(members, embedding, card)
        sets.append(select_stream_set(card))
    return EvaluatedCaptioner(
        writer, build_feature_source(list(dict.fromkeys(sets)), ExtractorPool("cpu"), frames)
    )


def with_branches(checkpoint: Checkpoint, branches: Branches) -> Checkpoint:
    """The same STaTS weights reading through one branch alone. Raises ValueError for another captioner."""
    return replace(checkpoint, captioner=checkpoint.captioner.with_config({"branches": branches}))
