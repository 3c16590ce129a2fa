"""Configures STaTS: its streams, its widths, and the switches of the paper's tables."""

from typing import Literal

from pydantic import BaseModel

from models.inputs import InputStream

#: How ST's frames become one vector: Table 2's rows. The first is the model's; the last two attend once, over
#: the frames' means ("average pooling of spatial features and then temporal pooling") or "over all
#: spatio-temporal features".
Pooling = Literal["mean_ranked", "ranked", "mean", "frames", "everything"]


class StreamConfig(InputStream):
    """Describes one input: its width d_in, and whether its N regions are a grid's cells or boxes."""

    regions: Literal["grid", "boxes"] = "grid"


class STaTSConfig(BaseModel, frozen=True):
    """Configures the captioner; widths default to the paper's, the demo checkpoint carries smaller ones."""

    streams: tuple[StreamConfig, ...] = ()
    embedded: int = 512
    words: int = 256
    attention: int = 128
    hidden: int = 512
    query: int = 512
    dropout: float = 0.5
    branches: Literal["stats", "st", "ts"] = "stats"
    pooling: Pooling = "mean_ranked"
    classes: int = 0
    class_width: int = 32
    class_dropout: float = 0.1
    temperature: float = 0.1
    margin: float = 1.0
    tie_words: bool = False
