"""Says what STaTS reads of any stream set."""

from models.captioners.stats.config import STaTSConfig, StreamConfig
from models.stream_choice import FRAMES, StreamChoice
from models.stream_set import StreamInput, StreamSet


def fit(base: STaTSConfig, streams: StreamSet) -> STaTSConfig:
    """Gives STaTS a branch for each stream of frames; a vector is a grid of one cell.

    Sound is left out: a silent video would leave a branch nothing to attend to. So are maps that hold several
    steps of time, whose cells are not places, and the mean or the boxes of a map that is read already.

    Raises StreamsDoNotFit where the set has sound alone.
    """
    choice = StreamChoice("stats", streams)
    choice.require(FRAMES, ("grid", "boxes", "none"), "frames")
    frames = [each for each in streams.inputs if each.kind in FRAMES and each.regions != "steps"]
    maps = {each.extractor for each in frames if each.regions == "grid"}
    read = [each for each in frames if each.regions == "grid" or _find_map(each) not in maps]
    configs = tuple(
        StreamConfig(
            name=each.stream, width=each.width, regions="boxes" if each.regions == "boxes" else "grid"
        )
        for each in read
    )
    return base.model_copy(update={"streams": configs})


def _find_map(stream: StreamInput) -> str:
    """Names the extractor of whose map a stream's values are."""
    return stream.extractor.removeprefix("roi:").partition("@")[0]
