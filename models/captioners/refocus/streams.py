"""Says what refocus reads of any stream set."""

from typing import Any

from models.captioners.refocus.config import RefocusConfig
from models.stream_choice import FRAMES, StreamChoice, to_input
from models.stream_set import StreamSet


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
