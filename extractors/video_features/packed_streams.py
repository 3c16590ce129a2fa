"""Packs streams into bytes, for a cache or another process, and makes the same streams of them, bit by bit.

A line of JSON has each stream's name tag and view; after it come its arrays as safetensors.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import save
from safetensors.torch import load

from extractors.features import WHOLE, Features, Stream, StreamSpec

Arrays: TypeAlias = dict[str, NDArray[Any]]


def pack_streams(streams: Features) -> bytes:
    """Packs the streams of one video."""
    tags = {name: {"spec": asdict(each.spec), "view": each.view} for name, each in streams.items()}
    return json.dumps(tags).encode() + b"\n" + save(collect_arrays(streams))


def unpack_streams(data: bytes) -> dict[str, Stream]:
    """Makes streams of what ``pack_streams`` has packed."""
    head, _, rest = data.partition(b"\n")
    arrays = {name: tensor.numpy() for name, tensor in load(rest).items()}
    return {
        name: make_stream(name, StreamSpec(**tag["spec"]), arrays) for name, tag in json.loads(head).items()
    }


def count_bytes(streams: Features) -> int:
    """Counts the bytes of the streams' values and boxes, which are nearly all of what is packed."""
    tensors = [each for stream in streams.values() for each in (stream.values, stream.boxes)]
    return sum(each.nbytes for each in tensors if each is not None)


def collect_arrays(streams: Mapping[str, Stream]) -> Arrays:
    """Collects every array of the streams under ``STREAM.MEMBER``."""
    arrays: Arrays = {}
    for name, stream in streams.items():
        arrays[f"{name}.values"] = stream.values.contiguous().numpy()
        arrays[f"{name}.start"], arrays[f"{name}.end"] = stream.start, stream.end
        if stream.boxes is not None:
            arrays[f"{name}.boxes"] = stream.boxes.contiguous().numpy()
        if stream.mask is not None:
            arrays[f"{name}.mask"] = stream.mask.contiguous().numpy()
        if stream.view != WHOLE:
            arrays[f"{name}.view"] = np.array(stream.view)
    return {name: np.ascontiguousarray(array) for name, array in arrays.items()}


def make_stream(name: str, spec: StreamSpec, arrays: Arrays) -> Stream:
    """Makes a stream of what ``collect_arrays`` collected of it.

    Args:
        name: the stream's.
        spec: its name tag.
        arrays: of all streams.

    Raises:
        KeyError: an array is absent.
    """
    boxes, mask, view = (arrays.get(f"{name}.{member}") for member in ("boxes", "mask", "view"))
    return Stream(
        torch.from_numpy(arrays[f"{name}.values"]),
        arrays[f"{name}.start"],
        arrays[f"{name}.end"],
        spec,
        None if boxes is None else torch.from_numpy(boxes),
        None if mask is None else torch.from_numpy(mask),
        WHOLE if view is None else tuple(view.tolist()),
    )
