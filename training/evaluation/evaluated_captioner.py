"""Loads what is scored: one captioner, or several combined as the service combines them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from pydantic import ValidationError

from extractors.errors import ReelwordError
from extractors.extractor import is_derived
from extractors.media.request import DecodeRequest
from extractors.pretrained.weights_folder import WeightsFolder
from extractors.windows import FRAMES, WindowOptions
from models.captioners.registry import UnknownCaptioner
from models.checkpoint import Card, Checkpoint, find_embedding, load_captioner, load_embedding
from models.combining.caption_writers import AveragedWriter, FusedWriter, FusionMember, SingleWriter, Writer
from models.combining.members import WrongMembers, check_members, choose_members, describe_files
from models.decoding.options import DecodingOptions, first_fault
from models.feature_sources.feature_source import (
    ExtractorPool,
    FeatureSource,
    StreamSource,
    build_feature_source,
)
from models.feature_sources.stream_checks import StreamMismatch, check_extractors, select_stream_set
from models.pretrained.installed import InstalledCaptioners
from models.stream_set import StreamSet, combine_stream_sets
from training.batches.loading import find_device
from training.batches.video_features import FeatureStore
from training.evaluation.captioning import FrameWriter
from training.precision import CPU
from training.saved_features.feature_folder import FeatureFolder

if TYPE_CHECKING:  # transformers takes seconds to import, and many have no such captioner
    from models.pretrained.load import AnyPretrainedCaptioner

Branches = Literal["stats", "st", "ts"]
COMBINED = (FusedWriter.kind, AveragedWriter.kind)


class WrongSearch(ReelwordError, ValueError, code="wrong_search"):
    """An option of the search that cannot be, or that who writes does not have; the message names it."""

    hint = "docs/models.md lists what each option may be."


@dataclass(frozen=True, eq=False)
class EvaluatedCaptioner:
    """A writer of captions, and what it reads: made of frames by ``source``, or ``saved`` before."""

    writer: Writer | FrameWriter
    source: StreamSource | None  #: None for one that looks at frames alone
    saved: FeatureStore | None = None

    @property
    def pretrained(self) -> Sequence["AnyPretrainedCaptioner"]:
        """Lists those of its captioners that look at frames."""
        if isinstance(self.writer, FrameWriter):
            return (self.writer.captioner,)
        return tuple(self.writer.pretrained.values()) if isinstance(self.writer, FusedWriter) else ()

    @property
    def request(self) -> DecodeRequest:
        """Joins the frames that its extractors and its pretrained captioners look at."""
        of_streams = [] if self.source is None else [self.source.request]
        return DecodeRequest.together([*of_streams, *(each.request for each in self.pretrained)])

    @property
    def feature_source(self) -> StreamSource:
        """The source that turns frames into what it reads. Raises ValueError where features were saved."""
        if self.source is None:
            raise ValueError("saved features are read here, and no frames")
        return self.source

    @property
    def search(self) -> DecodingOptions:
        """The search that the captioner's weights were chosen by, where its recipe says so; the usual one."""
        if isinstance(self.writer, SingleWriter):
            recipe = self.writer.checkpoint.card.training.get("recipe")
            plan = recipe.get("decoding", {}) if isinstance(recipe, dict) else {}
            return DecodingOptions.model_validate(plan).changed(attention=False)
        return DecodingOptions(attention=False)

    def choose_search(self, said: Mapping[str, Any]) -> DecodingOptions:
        """Changes ``search`` by what is said of it, name → value or None. Raises WrongSearch."""
        changes = {name: value for name, value in said.items() if value is not None}
        if "fusion_rule" in changes and not isinstance(self.writer, FusedWriter):
            raise WrongSearch("--fusion-rule: fusion alone ranks captions by one of its rules")
        try:
            return self.search.changed(**changes)
        except ValidationError as error:
            raise WrongSearch(": ".join(filter(None, first_fault(error)))) from error


def load_evaluated_captioner(
    name: str,
    members: Sequence[str] | None = None,
    streams: str | None = None,
    branches: Branches | None = None,
    frames: int = FRAMES,
    device: torch.device = CPU,
    features: FeatureFolder | None = None,
    stills: bool = False,
    embedding: Path | None = None,
) -> EvaluatedCaptioner:
    """Loads a captioner by name or checkpoint, or "fusion" or "ensemble" of ``members``.

    Args:
        name: of the captioner, its file, or one of COMBINED.
        members: names or checkpoints, by default those of the service.
        streams: a stream set, by default the captioner's own.
        branches: of STaTS, one alone.
        frames: spread over a clip.
        device: that computes.
        features: of videos, that were made before; no extractor is loaded then.
        stills: whether pictures are captioned, of which motion is looked for in one frame at a time.
        embedding: by which fusion chooses, by default that of the service.

    Raises:
        UnknownCaptioner, CheckpointError: a name is not known, or a file damaged.
        PretrainedError: an installed pretrained captioner is damaged.
        UnknownStreamSet, StreamMismatch: ``streams`` is not known, or does not fit.
        WrongMembers, VocabulariesDiffer: these members cannot be combined.
        FeatureMapDamaged, FeaturesDoNotFit, UnknownStream: saved features are not what they read.
    """
    if name in COMBINED:
        loaded = {each: _load(each, device) for each in _choose_members(name, members)}
        path = embedding or find_embedding()
        return _combine(name, loaded, frames, device, features, stills, path)
    if members is not None:
        raise WrongMembers(f"{name} is one captioner; members are combined by {' or '.join(COMBINED)}")
    checkpoint = _load(name, device)
    if not isinstance(checkpoint, Checkpoint):
        if (streams, branches, features) != (None, None, None):
            raise StreamMismatch(f"{name} looks at frames itself, and reads no streams")
        return EvaluatedCaptioner(FrameWriter(checkpoint), None)
    if branches is not None:
        checkpoint = with_branches(checkpoint, branches)
    if features is not None:
        store = features.open(
            features.select(checkpoint.card, streams), checkpoint.captioner.optional_streams
        )
        return EvaluatedCaptioner(SingleWriter(checkpoint), None, store)
    source = FeatureSource(_select_streams(checkpoint.card, streams, stills), str(device), frames=frames)
    check_extractors(checkpoint, source.wanted, source.extractors)
    return EvaluatedCaptioner(SingleWriter(checkpoint), source)


def _select_streams(card: Card, asked: str | None = None, stills: bool = False) -> StreamSet:
    """Selects what a card's captioner reads; of stills, beside frames that are spread, single frames."""
    chosen = select_stream_set(card, asked)
    return show_frames(chosen, most=2) if stills and chosen.spread is not None else chosen


def show_frames(streams: StreamSet, most: int) -> StreamSet:
    """Makes a set's networks of windows look at single frames, ``most`` of them."""
    once = WindowOptions(stack_size=1, step_size=1, most=most)
    looks = {
        each.extractor: WindowOptions() if is_derived(each.extractor) else once for each in streams.inputs
    }
    return replace(
        streams, inputs=tuple(replace(each, windows=looks[each.extractor]) for each in streams.inputs)
    )


def _load(name: str, device: torch.device) -> FusionMember:
    """Loads a checkpoint, or an installed pretrained captioner."""
    try:
        return load_captioner(name, device)
    except UnknownCaptioner:
        installed = list_installed()
        if name not in (card.name for card in installed.list()):
            raise
    from models.pretrained.folder import read_pretrained_info
    from models.pretrained.load import load_pretrained_captioner
    from models.pretrained.opening import LoadSettings

    info = read_pretrained_info(installed.path(name), name)
    return load_pretrained_captioner(info, LoadSettings(device=str(device)))


def list_installed() -> InstalledCaptioners:
    """Returns the pretrained captioners of the data folder."""
    return InstalledCaptioners(WeightsFolder.of(None).data / "captioners")


def _choose_members(kind: str, named: Sequence[str] | None) -> Sequence[str]:
    if named is not None:
        return check_members(named)
    members = [each.name for each in choose_members(kind, describe_files())]
    if not members:
        needed = "two captioners of one vocabulary" if kind == AveragedWriter.kind else "a captioner"
        raise WrongMembers(f"{kind} needs {needed}; train one with `python -m lab train stats`")
    return members


def _combine(
    kind: str,
    members: dict[str, FusionMember],
    frames: int,
    device: torch.device,
    features: FeatureFolder | None,
    stills: bool,
    path: Path | None,
) -> EvaluatedCaptioner:
    select = partial(_select_streams, stills=stills) if features is None else features.select
    checkpoints = {name: each for name, each in members.items() if isinstance(each, Checkpoint)}
    pretrained = members.keys() - checkpoints.keys()
    if pretrained and (kind == AveragedWriter.kind or features is not None):
        raise WrongMembers(f"{min(pretrained)} looks at frames: fusion takes it, without --features")
    sets: list[StreamSet] = [select(member.card) for member in checkpoints.values()]
    if kind == AveragedWriter.kind:
        writer: Writer = AveragedWriter(checkpoints)
    else:
        if path is None:
            raise WrongMembers(
                "fusion needs the semantic embedding: `python -m lab train semantic_embedding`"
            )
        embedding, card = load_embedding(path, device)
        writer = FusedWriter(members, embedding, card)
        sets.append(select(card))
    needed = list(dict.fromkeys(sets))
    if features is not None:
        optional = frozenset[str]().union(*(each.captioner.optional_streams for each in checkpoints.values()))
        return EvaluatedCaptioner(writer, None, features.open(combine_stream_sets(needed), optional))
    return EvaluatedCaptioner(writer, build_feature_source(needed, ExtractorPool(str(device)), frames))


def with_branches(checkpoint: Checkpoint, branches: Branches) -> Checkpoint:
    """Returns the same STaTS weights reading through one branch alone.

    Raises ValueError for another captioner.
    """
    captioner = checkpoint.captioner
    changed = captioner.with_config({"branches": branches}).to(find_device(captioner))
    return replace(checkpoint, captioner=changed)
