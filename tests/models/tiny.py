"""Small captioners of every name, and features that fit them, for tests of what all captioners share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from extractors.features import Features, Stream, StreamSpec
from models.captioner import Captioner
from models.captioners.dual_afr.alignment import LayerConfig
from models.captioners.dual_afr.config import DualAFRConfig
from models.captioners.dual_afr.network import DualAFR
from models.captioners.g2l.config import G2LConfig
from models.captioners.g2l.network import G2L
from models.captioners.refocus.config import RefocusConfig
from models.captioners.refocus.network import Refocus
from models.captioners.stats.config import STaTSConfig, StreamConfig
from models.captioners.stats.network import STaTS
from models.captioners.transformer.config import TransformerConfig
from models.captioners.transformer.network import Transformer
from models.captioners.vatex.config import SpatialVatexConfig, VatexConfig
from models.captioners.vatex.network import SpatialCaptioner, TemporalCaptioner, VanillaCaptioner
from models.inputs import InputStream
from models.vocabulary import Vocabulary

SPEC = StreamSpec("random", "0" * 64, "none")
WORDS = [f"w{i}" for i in range(17)]
GRID = StreamConfig(name="grid", width=6)
BOXES = StreamConfig(name="boxes", width=5, regions="boxes")
GRID_INPUT = InputStream(name="grid", width=6)
BOXES_INPUT = InputStream(name="boxes", width=5)


def stats_config(*streams: StreamConfig, **changes: object) -> STaTSConfig:
    """Widths that all differ, so that no two can be mistaken for one another."""
    base = STaTSConfig(
        streams=streams or (GRID,), embedded=7, words=8, attention=5, hidden=9, query=10, dropout=0.0
    )
    return base.model_copy(update=changes)


def randomised(captioner: Captioner, seed: int = 0, std: float = 0.35) -> Captioner:
    """Large enough that nothing is uniform, small enough that no tanh saturates and ties two frames."""
    torch.manual_seed(seed)
    for parameter in captioner.parameters():
        torch.nn.init.normal_(parameter, std=std)
    return captioner


def tiny_stats(config: STaTSConfig | None = None, seed: int = 0) -> STaTS:
    captioner = STaTS(config or stats_config(), Vocabulary(WORDS))
    randomised(captioner, seed)
    return captioner.eval()


def g2l_config(**changes: object) -> G2LConfig:
    base = G2LConfig(
        frames=GRID_INPUT,
        clips=GRID_INPUT,
        regions=BOXES_INPUT,
        encoded=7,
        aligned=4,
        words=8,
        attention=5,
        hidden=9,
        dropout=0.0,
    )
    return base.model_copy(update=changes)


def tiny_g2l(config: G2LConfig | None = None, seed: int = 0) -> G2L:
    captioner = G2L(config or g2l_config(), Vocabulary(WORDS))
    randomised(captioner, seed, std=0.6)
    return captioner.eval()


def dual_afr_config(**changes: object) -> DualAFRConfig:
    base = DualAFRConfig(
        layers=(
            LayerConfig(name="grid", width=6, side=2, kernel=(3, 3), pool=(1, 2)),
            LayerConfig(name="grid", width=6, side=2, pool=(1, 2)),
        ),
        top=GRID_INPUT,
        channels=7,
        attention=5,
        words=8,
        hidden=9,
        dropout=0.0,
        weight_range=None,
    )
    return base.model_copy(update=changes)


def tiny_dual_afr(config: DualAFRConfig | None = None, seed: int = 0) -> DualAFR:
    captioner = DualAFR(config or dual_afr_config(), Vocabulary(WORDS))
    randomised(captioner, seed)
    return captioner.eval()


def refocus_config(**changes: object) -> RefocusConfig:
    """The boxes of ``videos`` stand for sound, since only their mean over the video is heard."""
    base = RefocusConfig(grid=GRID_INPUT, audio=BOXES_INPUT, hidden=9, attention=5, dropout=0.0)
    return base.model_copy(update=changes)


def tiny_refocus(config: RefocusConfig | None = None, seed: int = 0) -> Refocus:
    captioner = Refocus(config or refocus_config(), Vocabulary(WORDS))
    randomised(captioner, seed, std=0.5)
    return captioner.eval()


def vatex_config(**changes: object) -> SpatialVatexConfig:
    """The boxes of ``videos`` stand for motion too."""
    base = SpatialVatexConfig(
        image=GRID_INPUT,
        motion=BOXES_INPUT,
        audio=None,
        objects=BOXES_INPUT,
        hidden=9,
        embedded=7,
        words=8,
        attention=5,
        dropout=0.0,
    )
    return base.model_copy(update=changes)


def tiny_vanilla(config: VatexConfig | None = None, seed: int = 0) -> VanillaCaptioner:
    captioner = VanillaCaptioner(_without_objects(config), Vocabulary(WORDS))
    randomised(captioner, seed)
    return captioner.eval()


def tiny_temporal(config: VatexConfig | None = None, seed: int = 0) -> TemporalCaptioner:
    captioner = TemporalCaptioner(_without_objects(config), Vocabulary(WORDS))
    randomised(captioner, seed)
    return captioner.eval()


def tiny_spatial(config: SpatialVatexConfig | None = None, seed: int = 0) -> SpatialCaptioner:
    captioner = SpatialCaptioner(config or vatex_config(), Vocabulary(WORDS))
    randomised(captioner, seed)
    return captioner.eval()


def transformer_config(**changes: object) -> TransformerConfig:
    base = TransformerConfig(
        frames=(GRID_INPUT, BOXES_INPUT), width=8, heads=2, feed_forward=11, layers=2, dropout=0.0
    )
    return base.model_copy(update=changes)


def tiny_transformer(config: TransformerConfig | None = None, seed: int = 0) -> Transformer:
    captioner = Transformer(config or transformer_config(), Vocabulary(WORDS))
    randomised(captioner, seed)
    return captioner.eval()


def _without_objects(config: VatexConfig | None) -> VatexConfig:
    return VatexConfig(**(config or vatex_config()).model_dump(exclude={"objects"}))


def stream(
    frames: int, regions: int, width: int, seed: int, mask: Tensor | None = None, boxes: bool = False
) -> Stream:
    generator = torch.Generator().manual_seed(seed)
    start = np.arange(frames, dtype=np.float64)
    corners = torch.rand(frames, regions, 4, generator=generator) if boxes else None
    values = torch.randn(frames, regions, width, generator=generator)
    return Stream(values, start, start + 1, SPEC, boxes=corners, mask=mask)


def videos(lengths: Sequence[int] = (3, 1, 5)) -> list[Features]:
    """A grid of four cells a frame, and up to three boxes of which some are padding."""
    made: list[Features] = []
    for seed, frames in enumerate(lengths):
        mask = torch.ones(frames, 3, dtype=torch.bool)
        mask[:, 2] = torch.arange(frames) % 2 == seed % 2
        mask[0, 1] = False
        made.append(
            {
                "grid": stream(frames, 4, 6, 10 + seed),
                "boxes": stream(frames, 3, 5, 20 + seed, mask=mask, boxes=True),
            }
        )
    return made


def heard_videos() -> list[Features]:
    """Motion at half the image's rate; the second video is silent."""
    made: list[Features] = []
    for i, features in enumerate(videos((3, 1, 5))):
        rows = (len(features["grid"]) + 1) // 2
        motion = stream(rows, 1, 4, 30 + i)
        motion.start[:], motion.end[:] = 2 * np.arange(rows), 2 * np.arange(rows) + 2
        extra = {} if i == 1 else {"sound": stream(2, 1, 3, 40 + i)}
        made.append({**features, "motion": motion, **extra})
    return made
