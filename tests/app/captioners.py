"""A captioner with weights drawn at random: it knows nothing, but everything about it is real."""

from __future__ import annotations

from pathlib import Path

import torch

from extractors.efficientnet import NETWORK, PREPROCESSING
from extractors.efficientnet_lite import CHANNELS
from extractors.features import StreamSpec
from extractors.weights import find
from models.checkpoint import Card, save_checkpoint
from models.stats import Stats, StatsConfig, StreamConfig
from models.vocabulary import Vocabulary

WORDS = ("a", "man", "woman", "dog", "rides", "runs", "on", "the", "grass", "street")


def write_captioner(folder: Path, name: str = "stats", seed: int = 1) -> Path:
    """``folder/name.safetensors``, a tiny STaTS over the default extractor's grid."""
    torch.manual_seed(seed)
    streams = (StreamConfig(name="grid", width=CHANNELS),)
    config = StatsConfig(streams=streams, embedded=32, words=16, attention=16, hidden=32, query=32)
    spec = StreamSpec(NETWORK, find(NETWORK).sha256, PREPROCESSING)
    card = Card("stats", {"grid": spec}, scores={}, training={"recipe": "random"})
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.safetensors"
    save_checkpoint(path, Stats(config, Vocabulary(list(WORDS))), card)
    return path
