"""Reads weights out of TensorFlow's frozen graphs and TensorFlow Lite files.

A frozen graph is one message in the wire format of protocol buffers (protobuf.dev, "Encoding")
whose schema is TensorFlow's graph.proto, node_def.proto, attr_value.proto and tensor.proto. Of its nodes only
those are read that hold an array of numbers; nothing in the file is run.

A quantised layer of TensorFlow Lite keeps a whole number of -127 to 127 for each weight and a scale for each
output channel. Their product is the weight, with which the network runs on any device, in any precision, and
can be trained on. OpenVINO reads the file and folds the constants.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from extractors.engines.openvino import openvino
from extractors.pretrained.errors import WeightsDamaged

Bytes: TypeAlias = memoryview
Field: TypeAlias = tuple[int, "int | Bytes"]

#: Numbers of the fields in their messages.
GRAPH_NODE = 1
NODE_NAME, NODE_KIND, NODE_ATTRIBUTE = 1, 2, 5
ENTRY_KEY, ENTRY_VALUE = 1, 2
VALUE_TENSOR = 8
TENSOR_TYPE, TENSOR_SHAPE, TENSOR_CONTENT, TENSOR_FLOATS = 1, 2, 4, 5
SHAPE_SIZE, SIZE_LENGTH = 2, 1
FLOAT = 1


def read_constants(file: Path) -> dict[str, NDArray[np.float32]]:
    """Reads every float32 array of the graph by its node's name. Raises WeightsDamaged."""
    try:
        graph = memoryview(file.read_bytes())
        nodes = (node for number, node in _read_fields(graph) if number == GRAPH_NODE)
        constants = dict(pair for node in nodes for pair in _read_constant(_as_message(node)))
    except (IndexError, KeyError, ValueError) as error:
        raise WeightsDamaged(f"{file} cannot be read as a frozen TensorFlow graph: {error}.") from error
    if not constants:
        raise WeightsDamaged(f"{file} holds no parameters.")
    return constants


def _read_constant(node: Bytes) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Reads the array of one node, where it is a constant of that type."""
    members = list(_read_fields(node))
    if _as_text(dict(members).get(NODE_KIND, memoryview(b""))) != "Const":
        return
    for number, entry in members:
        pair = dict(_read_fields(_as_message(entry))) if number == NODE_ATTRIBUTE else {}
        if pair and _as_text(pair[ENTRY_KEY]) == "value":
            tensor = dict(_read_fields(_as_message(pair[ENTRY_VALUE]))).get(VALUE_TENSOR)
            array = None if tensor is None else _read_array(_as_message(tensor))
            if array is not None:
                yield _as_text(dict(members)[NODE_NAME]), array


def _read_array(tensor: Bytes) -> NDArray[np.float32] | None:
    """Reads an array; None where its numbers are of another type. Few equal numbers may stand for many."""
    members = dict(_read_fields(tensor))
    if members.get(TENSOR_TYPE) != FLOAT:
        return None
    shape = _read_shape(_as_message(members.get(TENSOR_SHAPE, memoryview(b""))))
    content = members.get(TENSOR_CONTENT) or members.get(TENSOR_FLOATS) or memoryview(b"")
    numbers = np.frombuffer(_as_message(content), "<f4")
    count = math.prod(shape)
    if len(numbers) not in (1, count):
        raise ValueError(f"a constant of shape {shape} holds {len(numbers)} numbers")
    return np.broadcast_to(numbers, count).reshape(shape).copy()


def _read_shape(message: Bytes) -> tuple[int, ...]:
    sizes = (
        dict(_read_fields(_as_message(size)))
        for number, size in _read_fields(message)
        if number == SHAPE_SIZE
    )
    lengths = (size.get(SIZE_LENGTH, 0) for size in sizes)
    return tuple(length for length in lengths if isinstance(length, int))


def _read_fields(message: Bytes) -> Iterator[Field]:
    """Reads (number, value) of a message's members: whole numbers as such, everything else as bytes."""
    at = 0
    while at < len(message):
        key, at = _read_varint(message, at)
        kind = key & 7
        if kind == 0:
            value, at = _read_varint(message, at)
            yield key >> 3, value
            continue
        length, at = _read_varint(message, at) if kind == 2 else ({1: 8, 5: 4}[kind], at)
        if at + length > len(message):
            raise ValueError("it ends too early")
        yield key >> 3, message[at : at + length]
        at += length


def _read_varint(message: Bytes, at: int) -> tuple[int, int]:
    """Reads a number in groups of seven bits, the lowest first; returns where the next member begins too."""
    number, shift = 0, 0
    while True:
        byte = message[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number, at
        if shift > 63:
            raise ValueError("a number is too long")


def _as_message(value: int | Bytes) -> Bytes:
    if isinstance(value, int):
        raise ValueError("a number stands where a message should")
    return value


def _as_text(value: int | Bytes) -> str:
    return bytes(_as_message(value)).decode()


LAYERS = ("Convolution", "GroupConvolution", "MatMul")
#: What may stand between a constant and the layer that takes it.
BETWEEN = ("Convert", "Multiply", "Reshape", "Transpose", "Unsqueeze", "Subtract")


def read_layers(file: Path) -> dict[str, Tensor]:
    """Reads ``layers.K.weight`` and ``layers.K.bias`` of convolutions and linears in the order they run in.

    Weights are as torch has them, (outputs, inputs / groups, height, width). Raises WeightsDamaged.
    """
    try:
        model = openvino.Core().read_model(file)  # held while its nodes are asked what follows them
        nodes = [node for node in model.get_ordered_ops() if node.get_type_name() in LAYERS]
        outputs = [output for node in nodes for output in (node.input_value(1), _find_bias(node))]
        values = _fold_constants(outputs)
    except (RuntimeError, StopIteration) as error:
        lines = str(error).splitlines()  # where in OpenVINO's source, and last what is wrong
        reason = next((line for line in reversed(lines) if line.strip()), type(error).__name__).rstrip(".")
        raise WeightsDamaged(f"{file} cannot be read as a network of TensorFlow Lite: {reason}.") from error
    layers: dict[str, Tensor] = {}
    for i, (weight, bias) in enumerate(zip(values[::2], values[1::2], strict=True)):
        grouped = weight.ndim > 4  # (groups, outputs / groups, …)
        weight = weight.reshape(-1, *weight.shape[2:]) if grouped else weight
        layers[f"layers.{i}.weight"] = torch.from_numpy(weight).clone()
        layers[f"layers.{i}.bias"] = torch.from_numpy(bias.reshape(-1)).clone()
    return layers


def _find_bias(layer: Any) -> Any:
    """Finds the constant that is added to the layer's output. Raises StopIteration where there is none."""
    node = layer
    while node.get_type_name() != "Add":
        node = next(iter(node.output(0).get_target_inputs())).get_node()
    return next(value for value in node.input_values() if _is_constant(value.get_node()))


def _is_constant(node: Any) -> bool:
    while node.get_type_name() in BETWEEN:
        node = node.input_value(0).get_node()
    return bool(node.get_type_name() == "Constant")


def _fold_constants(outputs: list[Any]) -> list[np.ndarray[Any, np.dtype[np.float32]]]:
    """Computes the values at these outputs, which are made of constants alone."""
    exact = {"INFERENCE_PRECISION_HINT": "f32"}
    compiled = openvino.Core().compile_model(openvino.Model(outputs, []), "CPU", exact)
    results = compiled([])
    return [np.array(results[i], np.float32) for i in range(len(outputs))]
