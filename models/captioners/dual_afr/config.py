"""Configures dualAFR: the layers that it reads, their alignment, and its widths."""

from typing import Literal

from pydantic import BaseModel, Field

from models.captioners.dual_afr.alignment import Alignment, LayerConfig
from models.inputs import InputStream, deduplicate

C3D_LAYERS = (
    LayerConfig(name="c3d_pool2", width=128, side=28, kernel=(7, 7), pool=(8, 8)),
    LayerConfig(name="c3d_pool3", width=256, side=14, kernel=(5, 5), pool=(4, 4)),
    LayerConfig(name="c3d_pool4", width=512, side=7, kernel=(3, 3), pool=(2, 2)),
    LayerConfig(name="c3d_pool5", width=512, side=4),
)


#: The image net's stages, stacked over time; their kernels see one frame each.
DEMO_LAYERS = (
    LayerConfig(name="stage_14", width=120, side=14, kernel=(1, 5), pool=(1, 4)),
    LayerConfig(name="stage_7", width=352, side=7, kernel=(1, 3), pool=(1, 2)),
    LayerConfig(name="grid", width=1280, side=7, pool=(1, 2)),
)


class DualAFRConfig(BaseModel, frozen=True):
    """Configures the captioner. Widths default to the paper's; one layer alone is its "fc7 + pool4"."""

    layers: tuple[LayerConfig, ...] = C3D_LAYERS
    top: InputStream = InputStream(name="c3d_fc7", width=4096)
    channels: int = 512
    alignment: Alignment = "convolution"
    kind: Literal["soft", "hard"] = "soft"
    samples: int = Field(10, ge=2)  # K of the bound; each is judged by the others
    attention: int = 256
    words: int = 300
    hidden: int = 512
    dropout: float = 0.5
    weight_range: float | None = 0.01
    tie_words: bool = False

    @property
    def streams(self) -> tuple[InputStream, ...]:
        """In the order of ``encode_batches``; a_L leads, since attention is reported on its clock."""
        return deduplicate(self.layers[-1], *self.layers[:-1], self.top)
