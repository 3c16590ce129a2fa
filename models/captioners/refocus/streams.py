"""Declares the streams of refocus's paper, and what it reads of any stream set."""

from __future__ import annotations

from typing import Any

from extractors.windows import WindowOptions
from models.captioners.refocus.config import RefocusConfig
from models.stream_choice import FRAMES, StreamChoice, to_input
from models.stream_set import SOUND, StreamInput, StreamSet

REFOCUS = StreamSet(
    "refocus",
    "refocus",
    (
        StreamInput(
            "resnet152", "resnet152", 2048, WindowOptions(extraction_total=20), use="V^f of 20 frames"
        ),
        StreamInput(
            "resnet152_grid",
            "resnet152",
            2048,
            WindowOptions(extraction_total=20),
            49,
            "grid",
            use="v^s, the mean over frames",
        ),
        SOUND,
    ),
    "Watch It Twice 2019, section 4.2",
)


#: In the order in which they are listed.
STREAM_SETS = (REFOCUS,)


def fit(base: RefocusConfig, streams: StreamSet) -> RefocusConfig:
    """Gives refocus frames with their cells, and sound where the set has it.

    v^s is each cell's mean over the frames. Vectors and boxes have no place in common for it: of them V^f
    alone is read, as in the first rows of the paper's table 1.

    Raises StreamsDoNotFit where the set has sound alone.
    """
    choice = StreamChoice("refocus", streams)
    cells = choice.first(FRAMES, ("grid",))
    frames = cells or choice.require(FRAMES, ("none", "boxes"), "frames")
    sound = choice.first(("sound",), ("none",))
    changes: dict[str, Any] = {"grid": to_input(frames), "audio": None if sound is None else to_input(sound)}
    if cells is None:
        changes["spatial"] = False
    return base.model_copy(update=changes)
