"""Lists which extractors feed which captioner: the papers' stream sets, and the one that needs no download.

A stream set says which streams a captioner reads; a recipe (training/recipes/demo_recipes.py) says how it is
trained. They are chosen apart: any captioner whose shapes fit can be trained on any set. What a set's
extractors make is told by their streams' name tags, and a captioner takes only what it was trained on
(models/feature_sources/stream_checks.py).

Where a paper gives a stride in frames, it counts frames of the video at its own rate; I3D was trained at 25
frames a second and keeps them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from extractors.errors import ReelwordError
from extractors.extractor import list_inputs
from extractors.windows import WindowOptions

Regions = Literal["none", "grid", "boxes", "steps"]
#: What a stream tells of: single frames, neighbouring frames, or sound.
StreamKind = Literal["picture", "motion", "sound"]
OWN = WindowOptions()
#: What cards name in the place of a set whose features were made elsewhere (training/saved_features/).
SAVED = "saved"


class UnknownStreamSet(ReelwordError, ValueError):
    """No stream set has that name; the message lists those there are."""

    code = "unknown_stream_set"
    hint = "Choose one of those that the message lists."


class UnknownStream(ReelwordError, ValueError):
    """A stream set does not make that stream; the message lists those it makes."""

    code = "unknown_stream"
    hint = "Choose one of those that the message lists."


@dataclass(frozen=True)
class StreamInput:
    """Describes one stream of a set.

    Attributes:
        stream: Its name in ``Features``.
        extractor: As ``extractors.extractor.create`` takes it, with the number of boxes behind a colon.
        width: Channels C.
        windows: What differs from the extractor's own.
        count: Rows N of each step, 1 for a vector.
        regions: What the N rows are: a grid's cells row by row, a detector's boxes, or cells of several
            steps of time ("steps").
        kind: Whether single frames, neighbouring frames or sound are described.
        use: What the captioner does with it, in a few words.
    """

    stream: str
    extractor: str
    width: int
    windows: WindowOptions = OWN
    count: int = 1
    regions: Regions = "none"
    kind: StreamKind = "picture"
    use: str = ""

    @property
    def shape(self) -> str:
        """Rows and channels of a step, as N×C or C."""
        return f"{self.count}×{self.width}" if self.count > 1 else str(self.width)


@dataclass(frozen=True)
class StreamSet:
    """Describes the streams that feed one captioner.

    Attributes:
        name: As ``--streams`` takes it.
        captioner: Whose paper feeds it so, or "any".
        inputs: Its streams.
        source: Where the paper says it.
        spread: Where given, so many frames from the middles of equal parts of the whole time, none of them
            twice, take the place of windows; a service may spread another number.
    """

    name: str
    captioner: str
    inputs: tuple[StreamInput, ...]
    source: str
    spread: int | None = None

    @property
    def extractors(self) -> Mapping[str, WindowOptions]:
        """Says for each extractor how it cuts videos; those that take others' streams come last."""
        ordered = sorted(self.inputs, key=lambda each: each.extractor.startswith("roi:"))
        return {each.extractor: each.windows for each in ordered}

    def select(self, streams: Collection[str]) -> StreamSet:
        """Takes the part of the set that makes these streams. Raises UnknownStream for any other."""
        makers = {each.extractor for each in self.only(streams).inputs}
        makers |= {of for each in makers for of in list_inputs(each)}
        inputs = tuple(each for each in self.inputs if each.extractor in makers)
        return replace(self, inputs=inputs)

    def only(self, streams: Collection[str]) -> StreamSet:
        """Takes these streams alone, without what they are made of. Raises UnknownStream for any other."""
        if unknown := sorted(set(streams) - set(self.streams)):
            built = ", ".join(self.streams)
            raise UnknownStream(f"the stream set {self.name!r} makes {built}, and not {', '.join(unknown)}")
        return replace(self, inputs=tuple(each for each in self.inputs if each.stream in streams))

    @property
    def streams(self) -> tuple[str, ...]:
        return tuple(each.stream for each in self.inputs)


def combine_stream_sets(sets: Sequence[StreamSet]) -> StreamSet:
    """Makes one set of the streams of all. Raises ValueError where two make a stream in different ways."""
    if len(set(sets)) == 1:
        return sets[0]
    inputs: dict[str, StreamInput] = {}
    for each in (given for of in sets for given in of.inputs):
        known = inputs.setdefault(each.stream, each)
        if (known.extractor, known.windows) != (each.extractor, each.windows):
            raise ValueError(f"the stream {each.stream!r} would be made in two ways")
    names = "+".join(dict.fromkeys(each.name for each in sets))
    return StreamSet(names, "any", tuple(inputs.values()), "several sets", sets[0].spread)


EVERY_16 = WindowOptions(stack_size=16, step_size=16)
EVERY_32 = WindowOptions(step_size=32)
#: More windows than any video has: a stride that is kept however long the video is, where other sets spread
#: 64 windows over the time.
ALL = 1_000_000
#: STaTS: chunks of 16 frames, Mixed_5c 2×7×7×1024 with the two steps of time beside each other.
I3D_RGB = StreamInput("i3d_rgb_grid", "i3d_rgb", 2048, EVERY_16, 49, "grid", "motion", "RGB")
I3D_FLOW = StreamInput("i3d_flow_grid", "i3d_flow", 2048, EVERY_16, 49, "grid", "motion", "flow")
#: dualAFR: one reading of C3D serves both: fc7 of windows that overlap by half, as printed, and of every
#: second window the maps, which then follow each other without a gap.
C3D_WINDOWS = WindowOptions(stack_size=16, step_size=8, extraction_fps=2.0)
SOUND = StreamInput("vggish", "vggish", 128, kind="sound", use="sound, mean over time")

DEMO = StreamSet(
    "demo",
    "any",
    (StreamInput("grid", "efficientnet-lite2", 1280, count=49, regions="grid", use="picture"),),
    "ours: what ships without a download",
    spread=8,
)
STAGES = (
    StreamInput("stage_14", "efficientnet-lite2-stages", 120, count=196, regions="grid", use="layer 1"),
    StreamInput("stage_7", "efficientnet-lite2-stages", 352, count=49, regions="grid", use="layer 2"),
)
DEMO_STAGES = StreamSet(
    "demo-stages",
    "dual_afr",
    (*DEMO.inputs, *STAGES),
    "ours: the same, with the network's earlier stages",
    spread=8,
)
DEMO_TUNED = StreamSet(
    "demo-tuned",
    "any",
    (StreamInput("tuned_pair_grid", "tuned_pair", 1280, count=49, regions="grid", use="picture"),),
    "ours: two image networks under one head, their end trained on with a captioner",
    spread=8,
)
DEMO_TUNED_STAGES = StreamSet(
    "demo-tuned-stages",
    "dual_afr",
    (*DEMO_TUNED.inputs, *STAGES),
    "ours: the same, with the earlier stages as they were",
    spread=8,
)
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
FUSION = StreamSet(
    "fusion",
    "fusion",
    (
        StreamInput("resnext101", "resnext101", 2048, EVERY_32, use="picture of every 32nd frame"),
        StreamInput(
            "ircsn152",
            "ircsn152",
            2048,
            WindowOptions(stack_size=32, step_size=32),
            kind="motion",
            use="motion of every 32 frames",
        ),
        SOUND,
        StreamInput(
            "mask_rcnn:10", "mask_rcnn:10", 1024, EVERY_32, 10, "boxes", use="says where objects are"
        ),
        StreamInput(
            "roi:resnext101@mask_rcnn:10",
            "roi:resnext101@mask_rcnn:10",
            2048,
            count=10,
            regions="boxes",
            use="objects, of the picture's map",
        ),
        StreamInput(
            "roi:ircsn152@mask_rcnn:10",
            "roi:ircsn152@mask_rcnn:10",
            2048,
            count=10,
            regions="boxes",
            kind="motion",
            use="objects, of the motion's map",
        ),
    ),
    "VATEX challenge 2019, section 2.1",
)
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
DUAL_AFR = StreamSet(
    "dual_afr",
    "dual_afr",
    (
        StreamInput("c3d_pool2", "c3d", 128, C3D_WINDOWS, 8 * 28 * 28, "steps", "motion", "layer 1"),
        StreamInput("c3d_pool3", "c3d", 256, C3D_WINDOWS, 4 * 14 * 14, "steps", "motion", "layer 2"),
        StreamInput("c3d_pool4", "c3d", 512, C3D_WINDOWS, 2 * 7 * 7, "steps", "motion", "layer 3"),
        StreamInput("c3d_pool5", "c3d", 512, C3D_WINDOWS, 4 * 4, "grid", "motion", "layer 4"),
        StreamInput("c3d_fc7", "c3d", 4096, C3D_WINDOWS, kind="motion", use="a_(L+1), the mean over windows"),
    ),
    "Pu et al. 2018, Experiments and appendix: 112×112, 2 frames a second",
)

STREAM_SETS: Mapping[str, StreamSet] = {
    each.name: each
    for each in (
        *(
            DEMO,
            DEMO_STAGES,
            DEMO_TUNED,
            DEMO_TUNED_STAGES,
            STATS,
            STATS_FLOW,
            STATS_REGIONS,
            STATS_R152_C3D,
        ),
        *(FUSION, G2L, REFOCUS, DUAL_AFR),
    )
}


def find_stream_set(name: str) -> StreamSet:
    """Finds a stream set by its name. Raises UnknownStreamSet."""
    if name not in STREAM_SETS:
        raise UnknownStreamSet(f"there is no stream set {name!r}; there are: {', '.join(STREAM_SETS)}")
    return STREAM_SETS[name]
