"""The layers of a network in TensorFlow Lite's format, their whole numbers back to float32.

A quantised layer keeps a whole number of -127 to 127 for each weight and a scale for each output channel;
their product is the weight. What is lost by it stays lost, but the network then runs on any device, in any
precision, and can be trained on. OpenVINO reads the file and folds the constants.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from extractors.quiet_openvino import openvino
from extractors.weights_errors import WeightsDamaged

LAYERS = ("Convolution", "GroupConvolution", "MatMul")
#: What may stand between a constant and the layer that takes it.
BETWEEN = ("Convert", "Multiply", "Reshape", "Transpose", "Unsqueeze", "Subtract")


def layers(file: Path) -> dict[str, Tensor]:
    """``layers.K.weight`` and ``layers.K.bias`` of the convolutions and linears in the order they run in.

    Weights are as torch has them, (outputs, inputs / groups, height, width). Raises WeightsDamaged.
    """
    try:
        model = openvino.Core().read_model(file)  # held while its nodes are asked what follows them
        nodes = [node for node in model.get_ordered_ops() if node.get_type_name() in LAYERS]
        wanted = [output for node in nodes for output in (node.input_value(1), _bias(node))]
        values = _folded(wanted)
    except (RuntimeError, StopIteration) as error:
        said = str(error).splitlines()  # where in OpenVINO's source, and last what is wrong
        reason = next((line for line in reversed(said) if line.strip()), type(error).__name__).rstrip(".")
        raise WeightsDamaged(f"{file} cannot be read as a network of TensorFlow Lite: {reason}.") from error
    found: dict[str, Tensor] = {}
    for i, (weight, bias) in enumerate(zip(values[::2], values[1::2], strict=True)):
        grouped = weight.ndim > 4  # (groups, outputs / groups, …)
        weight = weight.reshape(-1, *weight.shape[2:]) if grouped else weight
        found[f"layers.{i}.weight"] = torch.from_numpy(weight).clone()
        found[f"layers.{i}.bias"] = torch.from_numpy(bias.reshape(-1)).clone()
    return found


def _bias(layer: Any) -> Any:
    """The constant that is added to what the layer makes. Raises StopIteration where there is none."""
    node = layer
    while node.get_type_name() != "Add":
        node = next(iter(node.output(0).get_target_inputs())).get_node()
    return next(value for value in node.input_values() if _constant(value.get_node()))


def _constant(node: Any) -> bool:
    while node.get_type_name() in BETWEEN:
        node = node.input_value(0).get_node()
    return bool(node.get_type_name() == "Constant")


def _folded(outputs: list[Any]) -> list[np.ndarray[Any, np.dtype[np.float32]]]:
    """What the graph makes of its constants there."""
    exact = {"INFERENCE_PRECISION_HINT": "f32"}
    compiled = openvino.Core().compile_model(openvino.Model(outputs, []), "CPU", exact)
    results = compiled([])
    return [np.array(results[i], np.float32) for i in range(len(outputs))]
