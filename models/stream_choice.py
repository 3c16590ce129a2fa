"""Chooses streams of a set by what they show, so that a captioner can be fitted to any set.

The papers' own sets give the papers' inputs. Of any other set each captioner takes what comes nearest:
vectors where its paper has vectors, cells or boxes where it attends to regions, motion where it reads clips.
A part that a set has nothing for is left out where the captioner has a switch for it, as its paper's
ablations do; where nothing can take its place the set is refused with the reason.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from extractors.errors import ReelwordError
from models.inputs import InputStream
from models.stream_set import Regions, StreamInput, StreamKind, StreamSet

#: What all captioners look at, single frames first.
FRAMES: tuple[StreamKind, ...] = ("picture", "motion")
#: What their rows are called.
ROWS = {"none": "vectors", "grid": "cells", "boxes": "boxes", "steps": "cells of several steps"}


class StreamsDoNotFit(ReelwordError, ValueError, code="streams_do_not_fit"):
    """A captioner cannot read a stream set; the message says what it looks for."""

    hint = "Choose another stream set, or another captioner."


@dataclass(frozen=True)
class StreamChoice:
    """Chooses streams of one set by what they show."""

    reader: str  #: the captioner, to be named in errors
    streams: StreamSet

    def list(self, kinds: Sequence[StreamKind], regions: Sequence[Regions]) -> list[StreamInput]:
        """Lists streams of these kinds and regions, what is named first coming first.

        Of boxes those come first whose values were pooled from another network's map, since their detector
        says where they are. Of cells the widest come first: a network's last map.
        """
        places = {(kind, region): (k, r) for k, kind in enumerate(kinds) for r, region in enumerate(regions)}
        fitting = [each for each in self.streams.inputs if (each.kind, each.regions) in places]
        return sorted(fitting, key=lambda each: (*places[each.kind, each.regions], *_rank(each)))

    def first(self, kinds: Sequence[StreamKind], regions: Sequence[Regions]) -> StreamInput | None:
        """Takes the first of ``list``; None where there is none."""
        return next(iter(self.list(kinds, regions)), None)

    def first_regions(self) -> StreamInput | None:
        """Takes boxes, or cells where there are none; None where there are no cells either."""
        return self.first(FRAMES, ("boxes",)) or self.first(FRAMES, ("grid",))

    def require(self, kinds: Sequence[StreamKind], regions: Sequence[Regions], wanted: str) -> StreamInput:
        """Takes the first of ``list``.

        Args:
            kinds: Picture, motion or sound.
            regions: What the rows of a step may be.
            wanted: What the captioner looks for, in words.

        Raises:
            StreamsDoNotFit: There is none.
        """
        stream = self.first(kinds, regions)
        if stream is None:
            inputs = self.streams.inputs
            offer = ", ".join(f"{each.stream} ({each.kind}, {ROWS[each.regions]})" for each in inputs)
            raise StreamsDoNotFit(
                f"{self.reader} reads {wanted}, and the stream set {self.streams.name} has {offer}"
            )
        return stream


def _rank(stream: StreamInput) -> tuple[bool, int]:
    """Sorts streams of one kind and one form."""
    return not stream.extractor.startswith("roi:"), -stream.width if stream.regions == "grid" else 0


def to_input(stream: StreamInput) -> InputStream:
    """Names a stream as a captioner's configuration does."""
    return InputStream(name=stream.stream, width=stream.width)
