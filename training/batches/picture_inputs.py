"""Inputs of a captioner on pictures: the streams, and the networks that compute them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from extractors.builtin.efficientnet_lite2 import EfficientNetLite2
from extractors.builtin.efficientnet_lite3 import EfficientNetLite3
from extractors.builtin.efficientnet_stages import EfficientNetStages
from extractors.builtin.tuned_pair import TUNED, TunedPair
from extractors.errors import ReelwordError
from extractors.extractor import OLDEST
from extractors.features import StreamSpec
from models.checkpoint import Card, find_checkpoint, read_card
from models.feature_sources.stream_checks import StreamMismatch, select_stream_set
from models.feature_sources.stream_sets import StreamSet, UnknownStreamSet
from models.inputs import rename_streams
from training.batches.picture_batches import CachedNetwork, TrainingItem, hold_out, load_training_sets
from training.batches.picture_features import VIEWS

SELECTION_SET = "flickr8k/"
#: The same for every run, so that no run trains on what another is chosen by.
SELECTION_SEED = 2020
#: Extractor → its network and how many views of a picture are kept of it.
PICTURE_NETWORKS: dict[str, Callable[[], CachedNetwork]] = {
    OLDEST: lambda: CachedNetwork(EfficientNetLite2(), VIEWS),
    EfficientNetStages.name: lambda: CachedNetwork(EfficientNetStages(), VIEWS),
    EfficientNetLite3.name: lambda: CachedNetwork(EfficientNetLite3(), VIEWS),
    TUNED: lambda: CachedNetwork(TunedPair(), VIEWS),
}


class NeedsVideo(ReelwordError, ValueError):
    """The stream set looks at what pictures do not show; the message says at what."""

    code = "needs_video"
    hint = "Train on videos (--data-set), or choose a captioner that reads single pictures."


@dataclass(frozen=True, eq=False)
class PictureInputs:
    """A stream set, the streams that a captioner eats of it, and the networks that make them of pictures."""

    streams: StreamSet
    names: tuple[str, ...]
    describers: tuple[CachedNetwork, ...]

    @classmethod
    def of(cls, streams: StreamSet, names: Sequence[str], teachers: Sequence[Card] = ()) -> PictureInputs:
        """teachers: of those who are fed from the same items.

        Raises NeedsVideo for a set that looks at what stills and pans over them do not show, UnknownStream
        for a stream that the set does not make, StreamMismatch for a teacher of video or of another network's
        streams.
        """
        _for_pictures(streams)
        parts = [streams.select(names), *(_of_teacher(card) for card in teachers)]
        makers = dict.fromkeys(extractor for part in parts for extractor in part.extractors)
        built = cls(streams, tuple(names), tuple(PICTURE_NETWORKS[name]() for name in makers))
        for card in teachers:
            built.check_streams(card)
        return built

    def items(self, data: Path, cache: Path, held_out: int) -> tuple[list[TrainingItem], list[TrainingItem]]:
        """(training, held out) of every set below ``data``. Raises FileNotFoundError where there is none."""
        every = load_training_sets(self.describers, data, cache)
        return hold_out(every, held_out, SELECTION_SET, SELECTION_SEED)

    @property
    def specs(self) -> dict[str, StreamSpec]:
        """The name tag of each stream that the captioner eats."""
        built = self._specs
        return {name: built[name] for name in self.names}

    def check_streams(self, card: Card) -> None:
        """Raises StreamMismatch unless the card's streams are the ones that these networks make."""
        built = self._specs
        for name, spec in card.streams.items():
            if built[name].identity != spec.identity:
                raise StreamMismatch(
                    f"{card.captioner} was trained on another {name} ({_described_spec(spec)}) "
                    f"than is made here ({_described_spec(built[name])})"
                )

    @property
    def _specs(self) -> Mapping[str, StreamSpec]:
        return {name: each.network.spec for each in self.describers for name in each.network.shapes}


def _described_spec(spec: StreamSpec) -> str:
    return f"{spec.network}, {spec.weights_sha256[:12]}"


def cards_of(teachers: Sequence[str]) -> list[Card]:
    """Of captioners by name or file. Raises UnknownCaptioner, or CheckpointError for a damaged file."""
    return [read_card(find_checkpoint(teacher)) for teacher in teachers]


def config_for_streams(config: Any, streams: StreamSet) -> Any:
    """A captioner's config whose inputs are the set's: what the set lacks is taken from its one stream of the
    same width, where it has one."""
    given = {}
    for stream in config.streams:
        alike = [each.stream for each in streams.inputs if each.width == stream.width]
        if stream.name not in streams.streams and len(alike) == 1:
            given[stream.name] = alike[0]
    return rename_streams(config, given)


def _of_teacher(card: Card) -> StreamSet:
    """What a teacher is fed with. Raises StreamMismatch where pictures do not show it."""
    try:
        streams = select_stream_set(card)
        _for_pictures(streams)
    except (NeedsVideo, UnknownStreamSet) as error:
        raise StreamMismatch(f"{card.captioner} cannot teach here: {error}") from error
    return streams


def _for_pictures(streams: StreamSet) -> None:
    if others := set(streams.extractors) - PICTURE_NETWORKS.keys():
        raise NeedsVideo(
            f"the stream set {streams.name} looks at video ({', '.join(sorted(others))}), "
            "and these sets are pictures"
        )
