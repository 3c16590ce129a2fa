"""A captioner with weights drawn at random: it knows nothing, but everything about it is real."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from extractors.efficientnet import NETWORK, PREPROCESSING
from extractors.efficientnet_lite import CHANNELS
from extractors.features import StreamSpec
from extractors.i3d_extractor import RGB
from extractors.weights import find
from models.checkpoint import Card, save_checkpoint
from models.stats import Stats, StatsConfig, StreamConfig
from models.vocabulary import Vocabulary

WORDS = ("a", "man", "woman", "dog", "rides", "runs", "on", "the", "grass", "street")


@dataclass(frozen=True)
class Diet:
    """What a captioner was trained on. streams: the name of the stream set."""

    streams: str
    stream: str
    width: int
    spec: StreamSpec


def demo() -> Diet:
    return Diet("demo", "grid", CHANNELS, StreamSpec(NETWORK, find(NETWORK).sha256, PREPROCESSING))


def motion() -> Diet:
    """The stream set ``stats`` by I3D's packaged weights."""
    spec = StreamSpec(RGB.network, find(RGB.name).sha256, RGB.preprocessing)
    return Diet("stats", "i3d_rgb_grid", 2 * RGB.width, spec)


def write_captioner(folder: Path, name: str = "stats", seed: int = 1, diet: Diet | None = None) -> Path:
    """``folder/name.safetensors``, a tiny STaTS over the default extractor's grid, or over another stream."""
    diet = diet or demo()
    torch.manual_seed(seed)
    streams = (StreamConfig(name=diet.stream, width=diet.width),)
    config = StatsConfig(streams=streams, embedded=32, words=16, attention=16, hidden=32, query=32)
    training = {"recipe": "random", "streams": diet.streams}
    card = Card("stats", {diet.stream: diet.spec}, scores={}, training=training)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.safetensors"
    save_checkpoint(path, Stats(config, Vocabulary(list(WORDS))), card)
    return path
