"""The seam between frames and features: what every extractor offers, and how one is made by name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from extractors.efficientnet import EfficientNetLite2
from extractors.engines import EngineName, Precision
from extractors.features import Frames, Stream, StreamSpec


class Extractor(Protocol):
    """Turns the frames of videos into streams.

    name: how it is asked for; needs: what it must be given ("frames" is the only kind so far);
    spec: the name tag its streams carry; width: channels of each row or cell.
    """

    name: str
    needs: frozenset[str]
    spec: StreamSpec
    width: int

    def extract(self, videos: Sequence[Frames]) -> list[dict[str, Stream]]:
        """For each video its streams by name, on the CPU. Videos are batched together."""
        ...


class UnknownExtractor(ValueError):
    """No extractor has that name; the message lists those there are."""


def create(
    name: str,
    device: str = "cpu",
    *,
    engine: EngineName = "auto",
    precision: Precision | None = None,
    threads: int = 1,
    cache: Path | None = None,
) -> Extractor:
    """The extractor of that name with its weights loaded; the options are those of its class.

    Raises UnknownExtractor, or WeightsError where the weights are missing or damaged.
    """
    makers = {EfficientNetLite2.name: EfficientNetLite2}
    if name not in makers:
        raise UnknownExtractor(f"there is no extractor {name!r}; there are: {', '.join(sorted(makers))}")
    return makers[name](device, engine=engine, precision=precision, threads=threads, cache=cache)
