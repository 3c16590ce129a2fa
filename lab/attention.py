"""How far may a captioner's weights over time be trusted?

    python -m lab attention --clips FOLDER [--skip NAME]…

For each captioner in weights/ that stands alone: the normalised entropy of its words' weights over the frames
(1 is no preference at all), the share of words that are called spread over the whole clip, and the mass on
the right clip of two. There the frames of two neighbours of the list stand in one film, four of each, and the
captioner is made to say what it said of the first alone; the mass of its words on that one's frames, then of
the other one's, .5 being a guess. The clips that no caption could be had for are listed.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer

from app.jobs.options import CaptionOptions
from app.pipeline.loaded_captioners import LoadedCaptioners
from app.settings import Settings
from extractors.decoder.decoder import Decoder
from extractors.features import Features, Stream
from extractors.media.errors import MediaError
from models.caption import Caption
from models.combining.caption_writers import SingleWriter
from models.combining.members import ENSEMBLE, FUSION
from models.decoding.decode import DecodingOptions
from models.feature_sources.feature_source import CombinedFeatureSource, FeatureSource
from models.likelihood import teacher_force
from models.vocabulary import EOS
from models.word_maps import SPREAD_ENTROPY

VIDEOS = {".mp4", ".mkv", ".avi", ".webm", ".gif"}


@dataclass(frozen=True)
class Trust:
    """entropies: of every word that had attention. masses: of every pair and order, on the right clip."""

    entropies: Sequence[float]
    masses: Sequence[float]

    def __str__(self) -> str:
        spread = statistics.fmean(value >= SPREAD_ENTROPY for value in self.entropies)
        low, middle, high = statistics.quantiles(self.entropies, n=4)
        mean, mass = statistics.fmean(self.entropies), statistics.fmean(self.masses)
        return f"{mean:12.3f} {low:6.3f} {middle:6.3f} {high:6.3f} {spread:8.2f} {mass:10.2f}"


def attention(
    clips: Annotated[Path, typer.Option(help="A folder of videos.")],
    skip: Annotated[
        list[str] | None, typer.Option(help="Name of a file to leave out; may be repeated.")
    ] = None,
) -> None:
    """Measure how far each captioner's weights over time may be trusted."""
    settings = Settings(device="cpu")
    torch.set_num_threads(settings.threads)
    captioners = LoadedCaptioners(settings, "cpu")
    files = sorted(
        file for file in clips.iterdir() if file.suffix in VIDEOS and file.name not in (skip or ())
    )
    names = [name for name in captioners.captioner_choices.names if name not in (FUSION, ENSEMBLE)]
    choices = {name: captioners.captioner_choices.resolve(CaptionOptions(captioner=name)) for name in names}
    sources = {name: captioners.feature_source(choice) for name, choice in choices.items()}
    features = {source: list(described(source, files)) for source in dict.fromkeys(sources.values())}
    print(f"captioner    entropy mean     25     50     75   spread right clip ({len(files)} files)")
    for name, choice in choices.items():
        writer = captioners.writer(choice)
        assert isinstance(writer, SingleWriter)
        print(f"{name:12} {trust(writer, features[sources[name]])}", flush=True)


def described(source: FeatureSource | CombinedFeatureSource, files: Sequence[Path]) -> Iterator[Features]:
    """The features of each file that can be decoded; the others are told."""
    with Decoder(Settings().decoder) as decoder:
        for file in files:
            try:
                decoded = decoder.decode(file, source.request)
            except MediaError as error:
                print(f"{file.name}: {error}", file=sys.stderr)
                continue
            yield source.extract([decoded.footage])[0]


def trust(writer: SingleWriter, videos: Sequence[Features]) -> Trust:
    captions = [writer.caption([video], DecodingOptions())[0][0] for video in videos]
    entropies = [
        entropy
        for caption in captions
        if caption.attention is not None
        for entropy in caption.attention.entropy or []
        if entropy is not None
    ]
    reported = list(zip(videos, captions, strict=True))
    masses = [
        mass
        for first, second in pairwise(reported)
        for mass in (right_mass(writer, first, second[0], 0), right_mass(writer, second, first[0], 1))
        if mass is not None
    ]
    return Trust(entropies, masses)


def right_mass(
    writer: SingleWriter, reported: tuple[Features, Caption], other: Features, place: int
) -> float | None:
    """The mean mass of a caption's words on the half it is of, in one film with another clip.

    place: 0 where its own clip comes first, 1 where it comes second. None where a word has no attention.
    """
    clip, caption = reported
    pair = (clip, other) if place == 0 else (other, clip)
    film = {name: joined(pair[0][name], pair[1][name]) for name in clip}
    captioner, half = writer.checkpoint.captioner, len(next(iter(film.values()))) // 2
    ids = [*captioner.vocabulary.encode([word.word for word in caption.words]), EOS]
    with torch.inference_mode():
        forced = teacher_force(captioner, captioner.encode([film]), torch.tensor([ids]))
    rows = [attention.temporal[0] for attention in forced.attentions[:-1] if attention is not None]
    right = slice(half) if place == 0 else slice(half, None)
    masses = [float(row[right].sum() / row.sum()) for row in rows if row.sum() > 0]
    return statistics.fmean(masses) if masses else None


def joined(first: Stream, second: Stream) -> Stream:
    """Every second row of two streams as one film, a second each."""
    values = torch.cat([first.values[::2], second.values[::2]])
    start = np.arange(len(values), dtype=np.float64)
    return replace(first, values=values, start=start, end=start + 1, mask=None)
