"""Declares the streams of STaTS' paper, and what it reads of any stream set."""

from __future__ import annotations

from extractors.windows import WindowOptions
from models.captioners.stats.config import STaTSConfig, StreamConfig
from models.stream_choice import FRAMES, StreamChoice
from models.stream_set import StreamInput, StreamSet

EVERY_16 = WindowOptions(stack_size=16, step_size=16)

#: Chunks of 16 frames, Mixed_5c 2×7×7×1024 with the two steps of time beside each other.
I3D_RGB = StreamInput("i3d_rgb_grid", "i3d_rgb", 2048, EVERY_16, 49, "grid", "motion", "RGB")

I3D_FLOW = StreamInput("i3d_flow_grid", "i3d_flow", 2048, EVERY_16, 49, "grid", "motion", "flow")

STATS = StreamSet("stats", "stats", (I3D_RGB,), "Cherian et al. 2020, section 4: I3D")

STATS_FLOW = StreamSet("stats-flow", "stats", (I3D_RGB, I3D_FLOW), "the same: I3D and flow")

STATS_REGIONS = StreamSet(
    "stats-regions",
    "stats",
    (
        StreamInput(
            "detectron2_c4:10",
            "detectron2_c4:10",
            2048,
            WindowOptions(step_size=16),
            10,
            "boxes",
            use="10 boxes of every 16th frame",
        ),
    ),
    "the same: FRCNN with ResNet-101",
)

STATS_R152_C3D = StreamSet(
    "stats-r152-c3d",
    "stats",
    (
        StreamInput(
            "resnet152_grid", "resnet152", 2048, WindowOptions(step_size=16), 49, "grid", use="picture"
        ),
        StreamInput("c3d_fc7", "c3d", 4096, EVERY_16, kind="motion", use="motion"),
    ),
    "the same, table 4: R152 and C3D (strides are not printed; 16 as elsewhere)",
)


#: In the order in which they are listed.
STREAM_SETS = (
    STATS,
    STATS_FLOW,
    STATS_REGIONS,
    STATS_R152_C3D,
)


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
