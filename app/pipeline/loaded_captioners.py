"""Holds the loaded captioners, alone or combined, what feeds each, and the plans by which they caption.

A plan captions from feature streams, from frames beside them in a fusion, or from frames alone. The engine
computes the streams of all plans of a batch together, then each plan writes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import structlog

from app.errors import EngineStartFailed, InvalidMembers
from app.jobs.captioner_choice import CaptionerChoices
from app.jobs.options import ENSEMBLE, FUSION, CaptionerChoice
from app.pipeline import installed_captioners as installed
from app.pipeline.semantic_space import LoadedSemanticSpace
from app.settings import Settings
from extractors.engines.kept_models import prune_models
from extractors.errors import PackageMissing, name_missing_packages
from extractors.features import Frames, Stream
from extractors.files import digest_of, sha256_of
from extractors.media.request import DecodeRequest
from extractors.pretrained.errors import WeightsMissing
from models.caption import Caption
from models.captioners.semantic_embedding import SemanticEmbedding
from models.checkpoint import (
    Card,
    Checkpoint,
    find_embedding,
    list_checkpoints,
    load_captioner,
    load_embedding,
)
from models.combining import caption_writers
from models.decoding.options import DecodingOptions
from models.feature_sources.feature_source import (
    ExtractorPool,
    StreamSource,
    build_feature_source,
    complete_sampling,
    describe_spread,
)
from models.feature_sources.stream_checks import StreamMismatch, check_extractors, select_stream_set
from models.pretrained.errors import PretrainedError
from models.pretrained.installed import PretrainedCard
from models.stream_set import StreamSet

if TYPE_CHECKING:  # transformers takes seconds to import, and many have no such captioner
    from models.pretrained.load import AnyPretrainedCaptioner

log = structlog.get_logger(__name__)


@dataclass(frozen=True, eq=False)
class CaptionInputs:
    """Holds what one video is captioned from."""

    frames: Frames
    streams: Mapping[str, Stream]  #: those of its own captioners, by name


@dataclass(frozen=True, eq=False)
class StreamPlan:
    """Captions from the streams of extractors: the papers' captioners, alone or combined.

    A fusion with pretrained members looks at the frames, too.
    """

    choice: CaptionerChoice
    writer: caption_writers.Writer
    feature_source: StreamSource  #: computes the streams

    def caption(
        self,
        videos: Sequence[CaptionInputs],
        options: DecodingOptions,
        prompt: str | None = None,  # noqa: ARG002 - refused before it comes here
    ) -> list[list[Caption]]:
        streams = [video.streams for video in videos]
        if isinstance(self.writer, caption_writers.FusedWriter):
            return self.writer.caption_frames([video.frames for video in videos], streams, options)
        return self.writer.caption(streams, options)

    def provenance(self, video: CaptionInputs) -> dict[str, Any]:
        """Lists each used stream's name tag and sampling; frames of pretrained members are "frames/NAME"."""
        specs = {name: video.streams[name].spec for name in self.writer.streams if name in video.streams}
        samplings = self.feature_source.samplings
        used = {
            name: {**asdict(spec), "sampling": complete_sampling(spec.sampling, samplings[name])}
            for name, spec in specs.items()
        }
        members = self.writer.pretrained if isinstance(self.writer, caption_writers.FusedWriter) else {}
        return {**used, **{f"frames/{name}": _describe_shown(each) for name, each in members.items()}}


@dataclass(frozen=True, eq=False)
class FramePlan:
    """Captions from frames: a pretrained captioner, which has its own image encoder."""

    choice: CaptionerChoice
    captioner: "AnyPretrainedCaptioner"
    feature_source: None = None  #: no extractor runs

    def caption(
        self, videos: Sequence[CaptionInputs], options: DecodingOptions, prompt: str | None = None
    ) -> list[list[Caption]]:
        return self.captioner.caption([video.frames for video in videos], options, prompt)

    def provenance(self, video: CaptionInputs) -> dict[str, Any]:  # noqa: ARG002 - of all videos alike
        """Names the model's class, and how many frames it was shown."""
        return {"frames": _describe_shown(self.captioner)}


CaptionPlan: TypeAlias = StreamPlan | FramePlan


def _describe_shown(captioner: "AnyPretrainedCaptioner") -> dict[str, str]:
    sampling = captioner.sampling
    rate = f"{sampling.fps} frames a second, at most {sampling.max_frames}"
    chosen = describe_spread(sampling.count) if sampling.fps is None else rate
    return {"network": captioner.info.architecture, "sampling": chosen}


class LoadedCaptioners:
    """Holds what the engine has loaded.

    Raises EngineStartFailed where there is no captioner, none that takes the stream set that was asked
    for, or not the one that is to be the default; and what loading a damaged one raises.
    """

    def __init__(self, settings: Settings, device: str) -> None:
        folder = settings.weights
        prune_models(settings.cache_folder, settings.cache_bytes)
        self._pool = ExtractorPool(device, threads=settings.rows_side_by_side, cache=settings.cache_folder)
        self._frames = settings.frames
        names = settings.captioners
        cards = installed.pretrained_captioners(settings).list()
        files = list_checkpoints(folder)
        present = [*files, *(card.name for card in cards)]
        if unknown := [name for name in names if name not in present]:
            raise EngineStartFailed(
                f"REELWORD_CAPTIONERS names {unknown[0]}, and installed are only: {', '.join(present)}."
            )
        self.pretrained = load_pretrained(settings, device, cards)
        loaded = {name: load_captioner(name, device, folder) for name in files if not names or name in names}
        if not loaded and not self.pretrained:
            raise EngineStartFailed(f"There is no captioner in {folder}.")
        self._stream_sets = stream_sets_for(loaded, settings.streams) if loaded else {}
        self._feature_sources: dict[frozenset[StreamSet], StreamSource] = {}
        self._writers: dict[CaptionerChoice, caption_writers.Writer] = {}
        self.checkpoints = {name: loaded[name] for name in self._stream_sets if self._is_fed(name)}
        if not self.checkpoints and not self.pretrained:
            raise EngineStartFailed(f"The weights of the networks that feed {', '.join(loaded)} are missing.")
        for name, checkpoint in self.checkpoints.items():
            check_extractors(
                checkpoint, self._stream_sets[name], self.feature_source(CaptionerChoice(name)).extractors
            )
        path = find_embedding(folder)
        self._embedding = None if path is None else load_embedding(path, device)
        self._embedding_sha256 = "" if path is None else sha256_of(path)
        pretrained = [installed.pretrained_info(card) for card in cards if card.name in self.pretrained]
        alone = [installed.captioner_info(name, files[name], self._frames) for name in self.checkpoints]
        self.infos = (*alone, *installed.combination_infos(alone, path), *pretrained)
        self.captioner_choices = CaptionerChoices(self.infos, settings.captioner)
        if self.captioner_choices.default not in self.captioner_choices.names:
            available = ", ".join(self.captioner_choices.names)
            raise EngineStartFailed(
                f"REELWORD_CAPTIONER is {self.captioner_choices.default}, and there are only: {available}."
            )

    def _is_fed(self, captioner: str) -> bool:
        """Says whether the weights of its networks are there; a captioner without them is left out."""
        try:
            self.feature_source(CaptionerChoice(captioner))
        except WeightsMissing as error:
            log.warning("captioner left out", captioner=captioner, why=error.advice)
            return False
        return True

    @cached_property
    def semantic_space(self) -> LoadedSemanticSpace | None:
        """Embeds by fusion's embedding, None without one; the networks below it are the captioners' own."""
        if self._embedding is None:
            return None
        return LoadedSemanticSpace(*self._embedding, self._pool)

    def plan(self, choice: CaptionerChoice) -> CaptionPlan:
        """Returns one way to caption. Raises InvalidMembers."""
        if choice.captioner in self.pretrained:
            return FramePlan(choice, self.pretrained[choice.captioner])
        return StreamPlan(choice, self.writer(choice), self.feature_source(choice))

    def writer(self, choice: CaptionerChoice) -> caption_writers.Writer:
        """Returns a choice's writer, made when it is first needed. Raises InvalidMembers."""
        if choice not in self._writers:
            try:
                writer = self._build(choice)
                _ = writer.streams
            except (caption_writers.VocabulariesDiffer, StreamMismatch) as error:
                raise InvalidMembers(f"These captioners cannot write together: {error}.") from error
            self._writers[choice] = writer
        return self._writers[choice]

    def feature_source(self, choice: CaptionerChoice) -> StreamSource:
        """Returns what feeds them, each extractor once; pretrained ones need none. Raises InvalidMembers."""
        stream_sets = [self._stream_sets[name] for name in choice.writers if name not in self.pretrained]
        if choice.captioner == FUSION:
            stream_sets.append(select_stream_set(self._embedding_of_fusion()[1]))
        try:
            return self._source_of(stream_sets)
        except ValueError as error:
            raise InvalidMembers(f"These captioners cannot be fed together: {error}.") from error

    def _source_of(self, stream_sets: Sequence[StreamSet]) -> StreamSource:
        key = frozenset(stream_sets)
        if key not in self._feature_sources:
            distinct = list(dict.fromkeys(stream_sets))
            self._feature_sources[key] = build_feature_source(distinct, self._pool, self._frames)
        return self._feature_sources[key]

    def requests(self) -> Mapping[str, DecodeRequest]:
        """Returns captioner → the frames that its extractors want; members' come beside them."""
        requests = {name: self.feature_source(CaptionerChoice(name)).request for name in self.checkpoints}
        requests |= {name: captioner.request for name, captioner in self.pretrained.items()}
        if self._embedding is not None:
            requests[FUSION] = self._source_of([select_stream_set(self._embedding[1])]).request
        return requests

    def feature_identities(self) -> Mapping[str, str]:
        """Returns captioner → what names all that decides its streams; pretrained ones look at frames."""
        identities = {name: self.feature_source(CaptionerChoice(name)).identity for name in self.checkpoints}
        if self._embedding is not None:
            identities[FUSION] = self._source_of([select_stream_set(self._embedding[1])]).identity
        return identities

    def digest(self, choice: CaptionerChoice) -> str:
        """Returns the sha256 of the writer's file; of several, one for all of them."""
        infos = {info.name: info for info in self.infos}
        if not choice.members:
            return infos[choice.captioner].weights_sha256
        fusion_sha256 = self._embedding_sha256 if choice.captioner == FUSION else ""
        return digest_of([fusion_sha256, *(infos[name].weights_sha256 for name in choice.members)])

    def _build(self, choice: CaptionerChoice) -> caption_writers.Writer:
        if choice.captioner == FUSION:
            writers = {name: self.pretrained.get(name) or self.checkpoints[name] for name in choice.writers}
            return caption_writers.FusedWriter(writers, *self._embedding_of_fusion())
        members = {name: self.checkpoints[name] for name in choice.writers}
        if choice.captioner == ENSEMBLE:
            return caption_writers.AveragedWriter(members)
        return caption_writers.SingleWriter(members[choice.captioner])

    def _embedding_of_fusion(self) -> tuple[SemanticEmbedding, Card]:
        assert self._embedding is not None, "fusion cannot be chosen without an embedding"
        return self._embedding


def load_pretrained(
    settings: Settings, device: str, cards: Sequence[PretrainedCard]
) -> "dict[str, AnyPretrainedCaptioner]":
    """Loads the pretrained captioners that are chosen, of no choice all; one that is damaged is left out.

    Args:
        settings: which are chosen, and in what precision they are loaded.
        cards: of all that are installed.
    """
    captioners = {}
    folder = installed.pretrained_captioners(settings)
    for card in cards:
        if settings.captioners and card.name not in settings.captioners:
            continue
        log.info("captioner is loaded", captioner=card.name, megabytes=round(card.facts.memory / 1e6))
        try:
            with name_missing_packages():  # of transformers, which takes seconds to import
                from models.pretrained.folder import read_pretrained_info
                from models.pretrained.load import load_pretrained_captioner
                from models.pretrained.opening import LoadSettings

            info = read_pretrained_info(folder.path(card.name), card.name)
            how = LoadSettings(device=device, precision=settings.precision)
            captioners[card.name] = load_pretrained_captioner(info, how)
        except (PretrainedError, PackageMissing) as error:
            log.error("captioner left out", captioner=card.name, why=error.advice)
    return captioners


def stream_sets_for(checkpoints: Mapping[str, Checkpoint], streams: str | None) -> dict[str, StreamSet]:
    """Selects the streams that each captioner reads; where a set is named, captioners that read other streams
    are left out. Raises EngineStartFailed where that leaves none."""
    stream_sets, refused = {}, []
    for name, checkpoint in checkpoints.items():
        try:
            stream_sets[name] = select_stream_set(checkpoint.card, streams)
        except StreamMismatch as error:
            if streams is None:
                raise
            refused.append(f"{name}: {error}")
            log.warning("captioner left out", captioner=name, why=str(error))
    if not stream_sets:
        raise EngineStartFailed(f"No captioner takes the stream set {streams} ({'; '.join(refused)}).")
    return stream_sets
