"""Builds a captioner's configuration for a stream set: says which stream the captioner reads as what.

The papers' own sets give the papers' inputs. Of any other set each captioner takes what comes nearest:
vectors where its paper has vectors, cells or boxes where it attends to regions, motion where it reads clips.
A part that a set has nothing for is left out where the captioner has a switch for it, as its paper's
ablations do; where nothing can take its place the set is refused with the reason. Captioners that are not
listed here keep the names and widths of their own configuration.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from extractors.errors import ReelwordError
from models.captioners.dual_afr.alignment import LayerConfig
from models.captioners.dual_afr.network import C3D_LAYERS, STAGES, DualAFRConfig
from models.captioners.g2l.network import G2LConfig
from models.captioners.refocus.network import RefocusConfig
from models.captioners.stats.network import STaTSConfig, StreamConfig
from models.captioners.vatex.network import SpatialVatexConfig, VatexConfig
from models.inputs import InputStream
from models.stream_set import DEMO_TUNED, Regions, StreamInput, StreamKind, StreamSet

#: What all captioners look at, single frames first.
FRAMES: tuple[StreamKind, ...] = ("picture", "motion")
#: Layers whose kernels and pooling dualAFR's paper, or its demo, has.
LAYERS: Mapping[str, LayerConfig] = {layer.name: layer for layer in (*C3D_LAYERS, *STAGES)}


class StreamsDoNotFit(ReelwordError, ValueError):
    """A captioner cannot read a stream set; the message says what it looks for."""

    code = "streams_do_not_fit"
    hint = "Choose another stream set, or another captioner."


@dataclass(frozen=True)
class StreamChoice:
    """Chooses streams of one set by what they show. reader: the captioner, to be named in errors."""

    reader: str
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

        Returns:
            The stream.

        Raises:
            StreamsDoNotFit: There is none.
        """
        found = self.first(kinds, regions)
        if found is None:
            made = ", ".join(f"{each.stream} ({_describe(each)})" for each in self.streams.inputs)
            raise StreamsDoNotFit(
                f"{self.reader} reads {wanted}, and the stream set {self.streams.name} has {made}"
            )
        return found


def _rank(stream: StreamInput) -> tuple[bool, int]:
    """Sorts streams of one kind and one form."""
    return not stream.extractor.startswith("roi:"), -stream.width if stream.regions == "grid" else 0


def _describe(stream: StreamInput) -> str:
    rows = {"none": "vectors", "grid": "cells", "boxes": "boxes", "steps": "cells of several steps"}
    return f"{stream.kind}, {rows[stream.regions]}"


def _input(stream: StreamInput) -> InputStream:
    return InputStream(name=stream.stream, width=stream.width)


def fit_stats(base: STaTSConfig, streams: StreamSet) -> STaTSConfig:
    """Gives STaTS a branch for each stream of frames; a vector is a grid of one cell.

    Sound is left out: a silent video would leave a branch nothing to attend to. So are maps that hold several
    steps of time, whose cells are not places.

    Args:
        base: Widths, and all else that the set does not decide.
        streams: The set.

    Returns:
        The configuration.

    Raises:
        StreamsDoNotFit: The set has sound alone.
    """
    choice = StreamChoice("stats", streams)
    choice.require(FRAMES, ("grid", "boxes", "none"), "frames")
    read = [each for each in streams.inputs if each.kind != "sound" and each.regions != "steps"]
    configs = tuple(
        StreamConfig(
            name=each.stream, width=each.width, regions="boxes" if each.regions == "boxes" else "grid"
        )
        for each in read
    )
    return base.model_copy(update={"streams": configs})


def fit_g2l(base: G2LConfig, streams: StreamSet) -> G2LConfig:
    """Gives G2L frames, clips and regions.

    Frames are vectors, or else the means of cells or boxes; clips are motion, or else the frames. Regions are
    boxes, or else cells; without either the local branch is left out.

    Args:
        base: Widths, and all else that the set does not decide.
        streams: The set.

    Returns:
        The configuration.

    Raises:
        StreamsDoNotFit: The set has sound alone.
    """
    choice = StreamChoice("g2l", streams)
    frames = choice.require(FRAMES, ("none", "grid", "boxes"), "frames")
    others = [each for each in choice.list(("motion",), ("none", "grid")) if each != frames]
    regions = choice.first(FRAMES, ("boxes",)) or choice.first(FRAMES, ("grid",))
    given: dict[str, Any] = {
        "frames": _input(frames),
        "clips": _input(others[0] if others else frames),
        "regions": _input(regions or frames),
    }
    if regions is None:
        given["key_frames"] = 0
    return base.model_copy(update=given)


def fit_refocus(base: RefocusConfig, streams: StreamSet) -> RefocusConfig:
    """Gives refocus frames with their cells, and sound where the set has it.

    v^s is each cell's mean over the frames. Vectors and boxes have no place in common for it: of them V^f
    alone is read, as in the first rows of the paper's table 1.

    Args:
        base: Widths, and all else that the set does not decide.
        streams: The set.

    Returns:
        The configuration.

    Raises:
        StreamsDoNotFit: The set has sound alone.
    """
    choice = StreamChoice("refocus", streams)
    cells = choice.first(FRAMES, ("grid",))
    frames = cells or choice.require(FRAMES, ("none", "boxes"), "frames")
    sound = choice.first(("sound",), ("none",))
    given: dict[str, Any] = {"grid": _input(frames), "audio": None if sound is None else _input(sound)}
    if cells is None:
        given["spatial"] = False
    return base.model_copy(update=given)


def fit_dual_afr(base: DualAFRConfig, streams: StreamSet) -> DualAFRConfig:
    """Gives dualAFR the maps of one network as its layers, and a vector of the same network on top.

    C3D's layers, and the stages of the demo's networks, are aligned as the paper and the demo align them. Of
    any other set the widest map is the only layer, and its mean the vector where the network gives none.

    Args:
        base: Widths, and all else that the set does not decide.
        streams: The set.

    Returns:
        The configuration.

    Raises:
        StreamsDoNotFit: The set has no map.
    """
    choice = StreamChoice("dual_afr", streams)
    widest = choice.require(FRAMES, ("grid",), "a network's maps over a grid")
    layers = _list_layers(streams) or (LayerConfig(**_input(widest).model_dump(), side=_side(widest)),)
    own = [each for each in choice.list(FRAMES, ("none",)) if each.extractor == widest.extractor]
    top = _input(own[0]) if own else InputStream(name=layers[-1].name, width=layers[-1].width)
    return base.model_copy(update={"layers": layers, "top": top})


def _list_layers(streams: StreamSet) -> tuple[LayerConfig, ...]:
    """Lists the layers of a set that was made for dualAFR, in the order of depth; none for any other set."""
    if streams.captioner != "dual_afr":
        return ()
    renamed = {DEMO_TUNED.inputs[0].stream: "grid"}
    maps = [each for each in streams.inputs if each.regions in ("grid", "steps")]
    given = {renamed.get(each.stream, each.stream): each for each in maps}
    return tuple(
        layer.model_copy(update={"name": given[name].stream, "width": given[name].width})
        for name, layer in LAYERS.items()
        if name in given
    )


def _side(stream: StreamInput) -> int:
    side = math.isqrt(stream.count)
    if side * side != stream.count:
        raise StreamsDoNotFit(
            f"dual_afr reads square maps, and {stream.stream} has {stream.count} cells a step"
        )
    return side


def fit_vatex(base: VatexConfig, streams: StreamSet) -> VatexConfig:
    """Gives the members of the fusion picture, motion and sound, as far as the set has them.

    Args:
        base: Widths, and all else that the set does not decide.
        streams: The set.

    Returns:
        The configuration.

    Raises:
        StreamsDoNotFit: The set has sound alone.
    """
    choice = StreamChoice("the fusion's captioner", streams)
    image = choice.require(FRAMES, ("none", "grid", "boxes"), "frames")
    motion = [each for each in choice.list(("motion",), ("none", "grid")) if each != image]
    sound = choice.first(("sound",), ("none",))
    given = {
        "image": _input(image),
        "motion": _input(motion[0]) if motion else None,
        "audio": None if sound is None else _input(sound),
    }
    return base.model_copy(update=given)


def fit_spatial(base: SpatialVatexConfig, streams: StreamSet) -> SpatialVatexConfig:
    """Gives the spatial captioner objects beside what the others read: boxes, or else cells.

    Args:
        base: Widths, and all else that the set does not decide.
        streams: The set.

    Returns:
        The configuration.

    Raises:
        StreamsDoNotFit: The set has neither boxes nor cells.
    """
    choice = StreamChoice("spatial", streams)
    objects = choice.first_regions() or choice.require((), (), "boxes, or cells in their place")
    moving = [each for each in choice.list(("motion",), ("boxes",)) if _boxes(each) == _boxes(objects)]
    given = {
        "objects": _input(objects),
        "moving_objects": _input(moving[0]) if moving and moving[0] != objects else None,
    }
    return SpatialVatexConfig.model_validate({**dict(fit_vatex(base, streams)), **given})


def _boxes(stream: StreamInput) -> str:
    """Names whose boxes a stream's values are of."""
    return stream.extractor.rpartition("@")[2]


#: Captioner → what fits its configuration to a set.
FITTERS: Mapping[str, Callable[[Any, StreamSet], BaseModel]] = {
    "stats": fit_stats,
    "g2l": fit_g2l,
    "refocus": fit_refocus,
    "dual_afr": fit_dual_afr,
    "vanilla": fit_vatex,
    "temporal": fit_vatex,
    "spatial": fit_spatial,
}
