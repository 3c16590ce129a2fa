"""What a captioner eats of pictures: a stream set's part, and the image networks that make it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from extractors.efficientnet import EfficientNetLite2
from extractors.efficientnet_lite3 import EfficientNetLite3
from extractors.efficientnet_stages import EfficientNetStages
from extractors.extractor import OLDEST
from extractors.features import StreamSpec
from extractors.tuned_pair import TUNED, TunedPair
from models.checkpoint import Card, read_card
from models.service import StreamMismatch, checkpoint_path, stream_set_for
from models.stream_sets import StreamSet, UnknownStreamSet
from models.streams import renamed
from training.dataset import Captioned, Describer, hold_out, load_training_sets
from training.feature_cache import VIEWS

SELECTION_SET = "flickr8k/"
#: The same for every run, so that no run trains on what another is chosen by.
SELECTION_SEED = 2020
#: Extractor → its network and how many views of a picture are kept of it.
PICTURE_NETWORKS: dict[str, Callable[[], Describer]] = {
    OLDEST: lambda: Describer(EfficientNetLite2(), VIEWS),
    EfficientNetStages.name: lambda: Describer(EfficientNetStages(), VIEWS),
    EfficientNetLite3.name: lambda: Describer(EfficientNetLite3(), VIEWS),
    TUNED: lambda: Describer(TunedPair(), VIEWS),
}


class NeedsVideo(ValueError):
    """The stream set looks at what pictures do not show; the message says at what."""


@dataclass(frozen=True, eq=False)
class Meal:
    """A stream set, the streams that a captioner eats of it, and the networks that make them of pictures."""

    streams: StreamSet
    names: tuple[str, ...]
    describers: tuple[Describer, ...]

    @classmethod
    def of(cls, streams: StreamSet, names: Sequence[str], teachers: Sequence[Card] = ()) -> Meal:
        """teachers: of those who are fed from the same items.

        Raises NeedsVideo for a set that looks at what stills and pans over them do not show, UnknownStream
        for a stream that the set does not make, StreamMismatch for a teacher of video or of another network's
        streams.
        """
        _for_pictures(streams)
        parts = [streams.of(names), *(_of_teacher(card) for card in teachers)]
        makers = dict.fromkeys(extractor for part in parts for extractor in part.extractors)
        made = cls(streams, tuple(names), tuple(PICTURE_NETWORKS[name]() for name in makers))
        for card in teachers:
            made.feeds(card)
        return made

    def items(self, data: Path, cache: Path, held_out: int) -> tuple[list[Captioned], list[Captioned]]:
        """(training, held out) of every set below ``data``. Raises FileNotFoundError where there is none."""
        every = load_training_sets(self.describers, data, cache)
        return hold_out(every, held_out, SELECTION_SET, SELECTION_SEED)

    @property
    def specs(self) -> dict[str, StreamSpec]:
        """The name tag of each stream that the captioner eats."""
        made = self._made
        return {name: made[name] for name in self.names}

    def feeds(self, card: Card) -> None:
        """Raises StreamMismatch unless the card's streams are the ones that these networks make."""
        made = self._made
        for name, spec in card.streams.items():
            if made[name].identity != spec.identity:
                raise StreamMismatch(
                    f"{card.captioner} was trained on another {name} ({_told(spec)}) "
                    f"than is made here ({_told(made[name])})"
                )

    @property
    def _made(self) -> Mapping[str, StreamSpec]:
        return {name: each.network.spec for each in self.describers for name in each.network.shapes}


def _told(spec: StreamSpec) -> str:
    return f"{spec.network}, {spec.weights_sha256[:12]}"


def cards_of(teachers: Sequence[str]) -> list[Card]:
    """Of captioners by name or file. Raises UnknownCaptioner, or CheckpointError for a damaged file."""
    return [read_card(checkpoint_path(teacher)) for teacher in teachers]


def fed_with(config: Any, streams: StreamSet) -> Any:
    """A captioner's config whose inputs are the set's: what the set lacks is taken from its one stream of the
    same width, where it has one."""
    given = {}
    for stream in config.streams:
        alike = [each.stream for each in streams.inputs if each.width == stream.width]
        if stream.name not in streams.streams and len(alike) == 1:
            given[stream.name] = alike[0]
    return renamed(config, given)


def _of_teacher(card: Card) -> StreamSet:
    """What a teacher is fed with. Raises StreamMismatch where pictures do not show it."""
    try:
        streams = stream_set_for(card)
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
