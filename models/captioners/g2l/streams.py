"""Declares the streams of G2L's paper, and what it reads of any stream set."""

from __future__ import annotations

from typing import Any

from extractors.windows import WindowOptions
from models.captioners.g2l.config import G2LConfig
from models.stream_choice import FRAMES, StreamChoice, to_input
from models.stream_set import StreamInput, StreamSet

#: More windows than any video has: a stride that is kept however long the video is, where other sets spread
#: 64 windows over the time.
ALL = 1_000_000

G2L = StreamSet(
    "g2l",
    "g2l",
    (
        StreamInput(
            "inception_v4", "inception_v4", 1536, WindowOptions(step_size=5, most=ALL), use="frames f"
        ),
        StreamInput(
            "resnext101_3d",
            "resnext101_3d",
            2048,
            WindowOptions(stack_size=8, step_size=5, most=ALL),
            kind="motion",
            use="clips v of 8 frames",
        ),
        # a detector looks at a window's last frame: of six, 5 frames on, where the middle f of three lies
        StreamInput(
            "bottom_up:16",
            "bottom_up:16",
            2048,
            WindowOptions(stack_size=6, step_size=15, most=ALL),
            16,
            "boxes",
            use="regions r of the middle of three f",
        ),
    ),
    "Global2Local 2021, section 4: implementation details",
)


#: In the order in which they are listed.
STREAM_SETS = (G2L,)


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
