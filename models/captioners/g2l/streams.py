"""Says what G2L reads of any stream set."""

from typing import Any

from models.captioners.g2l.config import G2LConfig
from models.stream_choice import FRAMES, StreamChoice, to_input
from models.stream_set import StreamSet


def fit(base: G2LConfig, streams: StreamSet) -> G2LConfig:
    """Gives G2L frames, clips and regions.

    Frames are vectors, or else the means of cells or boxes; clips are motion, or else the frames. Regions are
    boxes, or else cells; without either the local branch is left out.

    Raises StreamsDoNotFit where the set has sound alone.
    """
    choice = StreamChoice("g2l", streams)
    frames = choice.require(FRAMES, ("none", "grid", "boxes"), "frames")
    others = [each for each in choice.list(("motion",), ("none", "grid")) if each != frames]
    regions = choice.first(FRAMES, ("boxes",)) or choice.first(FRAMES, ("grid",))
    changes: dict[str, Any] = {
        "frames": to_input(frames),
        "clips": to_input(others[0] if others else frames),
        "regions": to_input(regions or frames),
    }
    if regions is None:
        changes["key_frames"] = 0
    return base.model_copy(update=changes)
