"""What each stream of a set costs: processor seconds a clip of decoding, every extractor and what joins them.

    python -m benchmarks.stream_costs demo-tuned demo-motion --clips FOLDER [--together 4] [--limit 10]

Everything runs in this process on one thread; the first clip compiles the networks and is not counted then.
``--together`` describes so many clips in one call, as a worker with a queue does. Without clips it says so
and ends well.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.table import Table

from extractors.features import Footage, Stream
from extractors.media.decode import decode_here
from models.captioners.registry import find_stream_set
from models.feature_sources.feature_source import ExtractorPool, FeatureSource

SUFFIXES = frozenset({".avi", ".gif", ".mkv", ".mp4", ".webm"})
SETS = ("demo-tuned", "demo-motion")


@dataclass(eq=False)
class Costs:
    """Processor seconds of each step, one number a clip."""

    seconds: dict[str, list[float]] = field(default_factory=dict)

    @contextmanager
    def of(self, step: str, clips: int = 1) -> Iterator[None]:
        """Notes what a step costs each of so many clips."""
        began = time.process_time()
        yield
        self.seconds.setdefault(step, []).extend([(time.process_time() - began) / clips] * clips)

    def means(self) -> dict[str, float]:
        """Returns the mean of each step, and the sum of all as ``all``."""
        of_steps = {step: mean(seconds) for step, seconds in self.seconds.items()}
        return {**of_steps, "all": sum(of_steps.values())}


def measure(source: FeatureSource, clips: Sequence[Path], together: int) -> Costs:
    """Measures what makes the streams of clips.

    Args:
        source: The set's.
        clips: Files; the first is described once before.
        together: How many are described in one call.
    """
    source.extract([decode_here(clips[0], source.request).footage])
    costs = Costs()
    for first in range(0, len(clips), together):
        footage = []
        for file in clips[first : first + together]:
            with costs.of("decode"):
                footage.append(decode_here(file, source.request).footage)
        _describe(source, footage, costs)
    return costs


def _describe(source: FeatureSource, footage: Sequence[Footage], costs: Costs) -> None:
    streams: list[dict[str, Stream]] = [{} for _ in footage]
    for extractor in source.frame_extractors:
        with costs.of(extractor.name, len(footage)):
            extracted = extractor.extract([source.choose(video, extractor) for video in footage])
        for earlier, new in zip(streams, extracted, strict=True):
            earlier.update(new)
    with costs.of("streams of streams", len(footage)):
        for each, video in zip(streams, footage, strict=True):
            source.complete(each, video)


def main(
    sets: Annotated[list[str] | None, typer.Argument(help="Stream sets, such as demo-motion.")] = None,
    clips: Annotated[Path | None, typer.Option(help="Folder of short videos.")] = None,
    together: Annotated[int, typer.Option(min=1, help="Clips that are described in one call.")] = 1,
    limit: Annotated[int, typer.Option(min=1, help="Clips that are measured.")] = 20,
) -> None:
    """Prints a table for each set."""
    if clips is None:
        typer.echo("not run: give --clips, a folder of short videos")
        return
    torch.set_num_threads(1)
    files = sorted(file for file in clips.iterdir() if file.suffix in SUFFIXES)[:limit]
    pool = ExtractorPool()
    for name in sets or SETS:
        costs = measure(FeatureSource(find_stream_set(name), pool=pool), files, together)
        table = Table(f"{name}: step", "processor seconds a clip")
        for step, seconds in costs.means().items():
            table.add_row(step, f"{seconds:.3f}")
        Console().print(table)


if __name__ == "__main__":
    typer.run(main)
