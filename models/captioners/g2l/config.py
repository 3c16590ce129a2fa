"""Configures G2L: its three inputs, its widths, and the switches of the paper's ablations."""

from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel

from models.inputs import InputStream, deduplicate

Level = Literal["2d", "3d", "al", "l"]


class G2LConfig(BaseModel, frozen=True):
    """Configures the captioner; widths default to the paper's. ``key_frames`` 0: no local branch."""

    frames: InputStream = InputStream(name="inception_v4", width=1536)
    clips: InputStream = InputStream(name="resnext101_3d", width=2048)
    regions: InputStream = InputStream(name="faster_rcnn_vg", width=2048)
    encoded: int = 1024
    aligned: int = 512
    words: int = 300
    attention: int = 384
    hidden: int = 768
    activation: Literal["relu", "tanh"] = "relu"
    alignment: bool = True
    key_frames: int = 2
    gumbel: bool = True
    scale: float = 10.0
    tau: float = 1e-4
    tau_backward: float | None = 0.5
    dropout: float = 0.5
    #: the share of each attention's smallest weights that is dropped (the paper's figure 6)
    masked: Mapping[Level, float] = {}
    tie_words: bool = False

    @property
    def streams(self) -> tuple[InputStream, ...]:
        """In the order of ``encode_batches``; the regions lead: attention is reported on their clock."""
        return deduplicate(self.regions, self.frames, self.clips)
