"""Says what a stream set is, which extractors feed a captioner, and lists the sets that need no download.

The papers' sets are in their captioners' folders, and models/captioners/registry.py finds all. A recipe
(training/recipes/demo_recipes.py) says how a captioner is trained. They are chosen apart: any captioner whose
shapes fit can be trained on any set. What a set's extractors make is told by their streams' name tags, and a
captioner takes only what it was trained on (models/feature_sources/stream_checks.py).

Where a paper gives a stride in frames, it counts frames of the video at its own rate; I3D was trained at 25
frames a second and keeps them.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self

from extractors.errors import ReelwordError, name_missing_packages
from extractors.extractor import find_maker, is_derived, list_needed_streams
from extractors.windows import FRAMES, WindowOptions

Regions = Literal["none", "grid", "boxes", "steps"]
#: What a stream tells of: single frames, neighbouring frames, sound, or the names of what is recognised.
StreamKind = Literal["picture", "motion", "sound", "label"]
OWN = WindowOptions()
#: Extractor → the one that makes its streams and further ones in the same pass.
MADE_BESIDE = {"tuned_pair": "tuned_pair:classes"}
#: What cards name in the place of a set whose features were made elsewhere (training/saved_features/).
SAVED = "saved"


class UnknownStream(ReelwordError, ValueError, code="unknown_stream"):
    """A stream set does not make that stream; the message lists those it makes."""

    hint = "Choose one of those that the message lists."


@dataclass(frozen=True)
class StreamInput:
    """Describes one stream of a set."""

    stream: str  #: its name in ``Features``
    extractor: str  #: as ``extractors.extractor.create`` takes it, with the number of boxes after a colon.
    width: int  #: channels C
    windows: WindowOptions = OWN  #: what differs from the extractor's own
    count: int = 1  #: rows N of each step, 1 for a vector
    #: what the N rows are: a grid's cells row by row, a detector's boxes, or cells of several steps of time
    #: ("steps")
    regions: Regions = "none"
    #: whether single frames, neighbouring frames or sound are described, or classes are named
    kind: StreamKind = "picture"
    use: str = ""  #: what the captioner does with it, in a few words

    @property
    def shape(self) -> str:
        """Rows and channels of a step, as N×C or C."""
        return f"{self.count}×{self.width}" if self.count > 1 else str(self.width)


@dataclass(frozen=True)
class StreamSet:
    """Describes the streams that feed one captioner."""

    name: str  #: as ``--streams`` takes it
    captioner: str  #: whose paper feeds it so, or "any"
    inputs: tuple[StreamInput, ...]  #: its streams
    source: str  #: where the paper says it
    #: where given, so many frames from the middles of equal parts of the whole time, none of them twice, take
    #: the place of windows for networks of single frames; a service may spread another number
    spread: int | None = None

    @property
    def extractors(self) -> Mapping[str, WindowOptions]:
        """Says for each extractor how it cuts videos; those that take others' streams come last.

        One whose streams another makes beside its own is left out.
        """
        ordered = sorted(self.inputs, key=lambda each: is_derived(each.extractor))
        windows = {each.extractor: each.windows for each in ordered}
        return {name: each for name, each in windows.items() if MADE_BESIDE.get(name) not in windows}

    def select(self, streams: Collection[str]) -> Self:
        """Takes the part of the set that makes these streams. Raises UnknownStream for any other."""
        makers = {each.extractor for each in self.only(streams).inputs}
        listed = {each.stream: each.extractor for each in self.inputs}
        needed = {stream for each in makers for stream in list_needed_streams(each)}
        makers |= {listed.get(stream) or find_maker(stream) for stream in needed}
        inputs = tuple(each for each in self.inputs if each.extractor in makers)
        return replace(self, inputs=inputs)

    def only(self, streams: Collection[str]) -> Self:
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
    for each in (stream for stream_set in sets for stream in stream_set.inputs):
        first = inputs.setdefault(each.stream, each)
        if (first.extractor, first.windows) != (each.extractor, each.windows):
            raise ValueError(f"the stream {each.stream!r} would be made in two ways")
    names = "+".join(dict.fromkeys(each.name for each in sets))
    return StreamSet(names, "any", tuple(inputs.values()), "several sets", sets[0].spread)


def make_hub_set(extractor: str) -> StreamSet:
    """Makes the set of the vector and the map of an encoder ``hub:NAME``.

    Raises WeightsError, PackageMissing.
    """
    with name_missing_packages():
        from extractors.catalog.hub_encoders import read_encoder  # transformers takes seconds to import

    encoder = read_encoder(extractor)
    kind: StreamKind = "motion" if encoder.frames > 1 else "picture"
    windows = OWN if encoder.frames > 1 else WindowOptions(extraction_total=FRAMES)
    vector = StreamInput(extractor, extractor, encoder.width, windows, kind=kind)
    cells, channels = encoder.cells, encoder.channels
    grid = StreamInput(f"{extractor}_grid", extractor, channels, windows, cells, "grid", kind)
    return StreamSet(extractor, "any", (vector, grid), encoder.kind)


DEMO = StreamSet(
    "demo",
    "any",
    (StreamInput("grid", "efficientnet-lite2", 1280, count=49, regions="grid", use="picture"),),
    "ours: what ships without a download",
    spread=8,
)
DEMO_TUNED = StreamSet(
    "demo-tuned",
    "any",
    (StreamInput("tuned_pair_grid", "tuned_pair", 1280, count=49, regions="grid", use="picture"),),
    "ours: two image networks under one head, their end trained on with a captioner",
    spread=8,
)
#: A detector looks at a window's last frame: at every second one of the eight that are spread.
EVERY_SECOND = WindowOptions(stack_size=2, step_size=2, extraction_total=8)
SSD, BRIEF, LITE2 = "coco_ssd:10", "i3d_brief", "efficientnet-lite2"
PAIR = "tuned_pair:classes"
DEMO_MOTION = StreamSet(
    "demo-motion",
    "any",
    (
        *DEMO_TUNED.inputs,
        StreamInput("i3d_brief_grid", BRIEF, 1024, count=49, regions="grid", kind="motion", use="motion"),
        StreamInput("i3d_brief", BRIEF, 1024, kind="motion", use="motion, the mean over places"),
        StreamInput(SSD, SSD, 90, EVERY_SECOND, 10, "boxes", "label", "objects, by class"),
        StreamInput(
            f"roi:tuned_pair@{SSD}", f"roi:tuned_pair@{SSD}", 1280, count=10, regions="boxes", use="objects"
        ),
        StreamInput("efficientnet-lite2_logits", PAIR, 1000, kind="label", use="kinds of things"),
        StreamInput("labels", f"labels:{BRIEF}+{LITE2}+{SSD}", 3, count=15, regions="boxes", kind="label"),
    ),
    "ours: picture, motion, objects, and the names of what all of them recognise",
    spread=8,
)
#: The demo's sets that any captioner may read.
DEMO_SETS = (DEMO, DEMO_TUNED, DEMO_MOTION)
