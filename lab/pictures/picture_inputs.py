"""Collects what a captioner needs of pictures: its streams, and the networks that compute them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch
from pydantic import BaseModel

from extractors.catalog.efficientnet_lite2 import EfficientNetLite2, EfficientNetStages
from extractors.catalog.efficientnet_lite3 import EfficientNetLite3
from extractors.catalog.tuned_pair import TunedPair
from extractors.extractor import ExtractorOptions
from extractors.features import StreamSpec
from lab.pictures.picture_batches import CachedNetwork, TrainingItem, hold_out, load_training_sets
from lab.pictures.picture_features import VIEWS
from lab.pictures.renamed_streams import ConfigT, rename_streams
from lab.pictures.still_network import StillNetwork
from models.captioners.registry import UnknownStreamSet
from models.checkpoint import Card, find_checkpoint, read_card
from models.feature_sources.stream_checks import StreamMismatch, select_stream_set
from models.inputs import InputStream
from models.stream_set import DEMO_MOTION, StreamSet
from training.precision import CPU
from training.recipes.train_options import NeedsVideo

SELECTION_SET = "flickr8k/"
#: The same for every run, so that no run trains on what another is chosen by.
SELECTION_SEED = 2020


def _build_viewed(kind: type[EfficientNetLite2], device: torch.device) -> CachedNetwork:
    return CachedNetwork(kind(ExtractorOptions(device)), VIEWS)


#: Extractor → its network on a device, and how many views of a picture are kept of it.
PICTURE_NETWORKS: dict[str, Callable[[torch.device], CachedNetwork]] = {
    kind.name: partial(_build_viewed, kind)
    for kind in (EfficientNetLite2, EfficientNetStages, EfficientNetLite3, TunedPair)
}


@dataclass(frozen=True, eq=False)
class PictureInputs:
    """The streams that a captioner reads of pictures.

    streams: the set that it is fed from. names: those of its streams that it reads. networks: the networks
    that compute these, and what teachers read.
    """

    streams: StreamSet
    names: tuple[str, ...]
    networks: tuple[CachedNetwork, ...]

    @classmethod
    def build(
        cls,
        streams: StreamSet,
        names: Sequence[str],
        teachers: Sequence[Card] = (),
        device: torch.device = CPU,
    ) -> PictureInputs:
        """Builds the networks that a captioner and its teachers need.

        Args:
            streams: the set that the captioner is fed from.
            names: the streams of it that the captioner reads.
            teachers: cards of captioners that are fed from the same items.
            device: on which the networks compute.

        Raises:
            NeedsVideo: the set looks at what stills and pans over them do not show.
            UnknownStream: the set does not make one of ``names``.
            StreamMismatch: a teacher reads video, or another network's streams.
        """
        _check_shown_by_pictures(streams.only(names))
        parts = [streams.only(names), *(_find_teacher_streams(card) for card in teachers)]
        makers = dict.fromkeys(each.extractor for part in parts for each in part.inputs)
        networks = tuple(_build_network(name, device) for name in makers)
        views = min(each.views for each in networks)
        networks = tuple(replace(each, views=views) for each in networks)
        built = cls(streams, tuple(names), networks)
        for card in teachers:
            built.check_streams(card)
        return built

    def items(self, data: Path, cache: Path, held_out: int) -> tuple[list[TrainingItem], list[TrainingItem]]:
        """Loads the items of every set below ``data``, with features.

        Args:
            data: the folder with archives and captions.
            cache: where features are kept.
            held_out: how many items are set aside.

        Returns:
            The items to train on, and those that are held out.

        Raises:
            FileNotFoundError: ``data`` holds no set.
        """
        every = load_training_sets(self.networks, data, cache)
        return hold_out(every, held_out, SELECTION_SET, SELECTION_SEED)

    @property
    def specs(self) -> dict[str, StreamSpec]:
        """The spec of each stream that the captioner reads."""
        built = self._specs
        return {name: built[name] for name in self.names}

    def check_streams(self, card: Card) -> None:
        """Checks that a card's streams are the ones that these networks compute. Raises StreamMismatch."""
        built = self._specs
        for name, spec in card.streams.items():
            if built[name].identity != spec.identity:
                raise StreamMismatch(
                    f"{card.captioner} was trained on another {name} ({_describe_spec(spec)}) "
                    f"than is made here ({_describe_spec(built[name])})"
                )

    @property
    def _specs(self) -> Mapping[str, StreamSpec]:
        return {name: each.network.spec for each in self.networks for name in each.network.shapes}


def _describe_spec(spec: StreamSpec) -> str:
    return f"{spec.network}, {spec.weights_sha256[:12]}"


def read_cards(teachers: Sequence[str]) -> list[Card]:
    """Reads the cards of captioners by name or file. Raises UnknownCaptioner, CheckpointError."""
    return [read_card(find_checkpoint(teacher)) for teacher in teachers]


@runtime_checkable
class ReadsStreams(Protocol):
    """A configuration that lists the streams which are read by it; every captioner's does."""

    @property
    def streams(self) -> Sequence[InputStream]: ...


def list_streams(config: BaseModel) -> Sequence[InputStream]:
    """Returns the streams that a configuration reads. Raises TypeError for one that lists none."""
    if not isinstance(config, ReadsStreams):
        raise TypeError(f"{type(config).__name__} lists no streams: a captioner's configuration needs them")
    return config.streams


def fit_to_streams(config: ConfigT, streams: StreamSet) -> ConfigT:
    """Renames the inputs of a captioner's config to streams of the set.

    What the set lacks is taken from its one stream of the same width, where it has one.
    """
    new_names = {}
    for stream in list_streams(config):
        alike = [each.stream for each in streams.inputs if each.width == stream.width]
        if stream.name not in streams.streams and len(alike) == 1:
            new_names[stream.name] = alike[0]
    return rename_streams(config, new_names)


def _find_teacher_streams(card: Card) -> StreamSet:
    """Returns the set that a teacher is fed from. Raises StreamMismatch where pictures do not show it."""
    try:
        streams = select_stream_set(card)
        _check_shown_by_pictures(streams)
    except (NeedsVideo, UnknownStreamSet) as error:
        raise StreamMismatch(f"{card.captioner} cannot teach here: {error}") from error
    return streams


def _build_network(extractor: str, device: torch.device) -> CachedNetwork:
    """Builds what describes pictures as an extractor does: of all views, or of the whole picture alone."""
    if extractor in PICTURE_NETWORKS:
        return PICTURE_NETWORKS[extractor](device)
    return CachedNetwork(StillNetwork(extractor, DEMO_MOTION, device), views=1)


def _check_shown_by_pictures(streams: StreamSet) -> None:
    if others := set(streams.extractors) - PICTURE_NETWORKS.keys() - set(DEMO_MOTION.extractors):
        raise NeedsVideo(
            f"the stream set {streams.name} looks at video ({', '.join(sorted(others))}), "
            "and these sets are pictures"
        )
