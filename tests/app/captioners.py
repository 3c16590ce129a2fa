"""Captioners with weights drawn at random: they know nothing, but everything about them is real."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import torch

from extractors.catalog.efficientnet_lite2 import NETWORK, PREPROCESSING
from extractors.catalog.i3d import RGB
from extractors.features import StreamSpec
from extractors.networks.efficientnet_lite import CHANNELS
from extractors.pretrained.load import find_weights
from models.captioner import Captioner
from models.captioners.dual_afr.alignment import LayerConfig
from models.captioners.dual_afr.config import DualAFRConfig
from models.captioners.dual_afr.network import DualAFR
from models.captioners.g2l.config import G2LConfig
from models.captioners.g2l.network import G2L
from models.captioners.refocus.config import RefocusConfig
from models.captioners.refocus.network import Refocus
from models.captioners.semantic_embedding import SemanticEmbedding, SemanticEmbeddingConfig
from models.captioners.stats.config import STaTSConfig, StreamConfig
from models.captioners.stats.network import STaTS
from models.captioners.vatex.config import SpatialVatexConfig, VatexConfig
from models.captioners.vatex.network import SpatialCaptioner, TemporalCaptioner, VanillaCaptioner
from models.checkpoint import Card, save_checkpoint
from models.inputs import InputStream
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
    return Diet("demo", "grid", CHANNELS, StreamSpec(NETWORK, find_weights(NETWORK).sha256, PREPROCESSING))


def motion() -> Diet:
    """The stream set ``stats`` by I3D's packaged weights."""
    spec = StreamSpec(RGB.network, find_weights(RGB.name).sha256, RGB.preprocessing)
    return Diet("stats", "i3d_rgb_grid", 2 * RGB.width, spec)


def captioners(stream: InputStream) -> dict[str, Captioner]:
    """One of each kind, tiny, over cells of a grid."""
    words = Vocabulary(list(WORDS))
    narrow = {"words": 16, "attention": 16, "hidden": 32, "dropout": 0.0}
    two_layers = VatexConfig(image=stream, motion=None, audio=None, embedded=32, **narrow)
    layers = (
        LayerConfig(name=stream.name, width=stream.width, side=7, kernel=(1, 3), pool=(1, 2)),
        LayerConfig(name=stream.name, width=stream.width, side=7, pool=(1, 2)),
    )
    g2l = G2LConfig(frames=stream, clips=stream, regions=stream, encoded=32, aligned=16, **narrow)
    refocus = RefocusConfig(grid=stream, audio=None, embedded=32, hidden=32, attention=16, dropout=0.0)
    return {
        "g2l": G2L(g2l, words),
        "refocus": Refocus(refocus, words),
        "dual_afr": DualAFR(
            DualAFRConfig(layers=layers, top=stream, channels=16, weight_range=None, **narrow), words
        ),
        "vanilla": VanillaCaptioner(two_layers, words),
        "temporal": TemporalCaptioner(two_layers, words),
        "spatial": SpatialCaptioner(SpatialVatexConfig(objects=stream, **two_layers.model_dump()), words),
    }


def write_all(folder: Path, only: Collection[str] | None = None) -> Path:
    """A captioner of each kind, STaTS and ``only`` some others, over the default extractor's grid, and the
    embedding of fusion."""
    diet = demo()
    stream = InputStream(name=diet.stream, width=diet.width)
    write_captioner(folder)
    torch.manual_seed(2)
    for name, captioner in captioners(stream).items():
        if only is None or name in only:
            save_checkpoint(folder / f"{name}.safetensors", captioner, _card(name, diet))
    config = SemanticEmbeddingConfig(streams=(stream,), words=16, joint=32)
    embedding = SemanticEmbedding(config, Vocabulary(list(WORDS)))
    save_checkpoint(folder / "semantic_embedding.safetensors", embedding, _card(SemanticEmbedding.name, diet))
    return folder


def _card(name: str, diet: Diet) -> Card:
    return Card(
        name, {diet.stream: diet.spec}, scores={}, training={"recipe": "random", "streams": diet.streams}
    )


def write_captioner(
    folder: Path,
    name: str = "stats",
    seed: int = 1,
    diet: Diet | None = None,
    words: tuple[str, ...] = WORDS,
) -> Path:
    """``folder/name.safetensors``, a tiny STaTS over the default extractor's grid, or over another stream."""
    diet = diet or demo()
    torch.manual_seed(seed)
    streams = (StreamConfig(name=diet.stream, width=diet.width),)
    config = STaTSConfig(streams=streams, embedded=32, words=16, attention=16, hidden=32, query=32)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.safetensors"
    save_checkpoint(path, STaTS(config, Vocabulary(list(words))), _card("stats", diet))
    return path
