"""Says what the toy captioner reads."""

from __future__ import annotations

from pydantic import BaseModel

from models.stream_choice import FRAMES, StreamChoice, to_input
from models.stream_set import StreamSet


def fit(base: BaseModel, streams: StreamSet) -> BaseModel:
    grid = StreamChoice("mean", streams).require(FRAMES, ("grid", "none"), "frames")
    return base.model_copy(update={"streams": (to_input(grid),)})
