"""Says what dualAFR reads of any stream set."""

import math
from collections.abc import Mapping

from models.captioners.dual_afr.alignment import LayerConfig
from models.captioners.dual_afr.config import C3D_LAYERS, DEMO_LAYERS, DualAFRConfig
from models.inputs import InputStream
from models.stream_choice import FRAMES, StreamChoice, StreamsDoNotFit, to_input
from models.stream_set import DEMO_TUNED, StreamInput, StreamSet

#: Layers whose kernels and pooling dualAFR's paper, or its demo, has.
LAYERS: Mapping[str, LayerConfig] = {layer.name: layer for layer in (*C3D_LAYERS, *DEMO_LAYERS)}


def fit(base: DualAFRConfig, streams: StreamSet) -> DualAFRConfig:
    """Gives dualAFR the maps of one network as its layers, and a vector of the same network on top.

    C3D's layers, and the stages of the demo's networks, are aligned as the paper and the demo align them. Of
    any other set the widest map is the only layer, and its mean the vector where the network gives none.

    Raises StreamsDoNotFit where the set has no map.
    """
    choice = StreamChoice("dual_afr", streams)
    widest = choice.require(FRAMES, ("grid",), "a network's maps over a grid")
    layers = _list_layers(streams) or (LayerConfig(**to_input(widest).model_dump(), side=_side(widest)),)
    vectors = [each for each in choice.list(FRAMES, ("none",)) if each.extractor == widest.extractor]
    top = to_input(vectors[0]) if vectors else InputStream(name=layers[-1].name, width=layers[-1].width)
    return base.model_copy(update={"layers": layers, "top": top})


def _list_layers(streams: StreamSet) -> tuple[LayerConfig, ...]:
    """Lists the layers of a set that was made for dualAFR, in the order of depth; none for any other set."""
    if streams.captioner != "dual_afr":
        return ()
    renamed = {DEMO_TUNED.inputs[0].stream: "grid"}
    maps = [each for each in streams.inputs if each.regions in ("grid", "steps")]
    maps_by_layer = {renamed.get(each.stream, each.stream): each for each in maps}
    return tuple(
        layer.model_copy(update={"name": maps_by_layer[name].stream, "width": maps_by_layer[name].width})
        for name, layer in LAYERS.items()
        if name in maps_by_layer
    )


def _side(stream: StreamInput) -> int:
    side = math.isqrt(stream.count)
    if side * side != stream.count:
        raise StreamsDoNotFit(
            f"dual_afr reads square maps, and {stream.stream} has {stream.count} cells a step"
        )
    return side
