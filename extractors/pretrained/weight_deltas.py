"""Applies the quantized differences of a network from another one.

Of weights that are at hand already only the changes need to be kept, and those are small: a whole number of
-127 to 127 for each weight and a scale for each output channel. What has one number a channel (a bias) is
kept exactly.
"""

from __future__ import annotations

from torch import Tensor

from extractors.pretrained.errors import WrongCheckpoint
from extractors.pretrained.parameters import Checkpoint

SCALE = ".scale"


def apply_delta(before: Checkpoint, changes: Checkpoint) -> dict[str, Tensor]:
    """Adds changes to a network's parameters.

    Args:
        changes: by the parameter's name int8 of its shape, with NAME.scale, float32 (channels,); or float32
            as it is.

    Returns:
        The other network's parameters, each off by half a scale at most.

    Raises:
        WrongCheckpoint: the changes are not of these parameters.
    """
    expected = set(before) | {name + SCALE for name, value in before.items() if value.dim() > 1}
    if differing := sorted(expected ^ set(changes)):
        raise WrongCheckpoint(f"Not changes of these weights: {', '.join(differing[:3])} is one's alone.")
    return {name: _add_change(name, value, changes) for name, value in before.items()}


def _add_change(name: str, value: Tensor, changes: Checkpoint) -> Tensor:
    change = changes[name]
    if change.shape != value.shape:
        raise WrongCheckpoint(f"The change of {name} is {tuple(change.shape)}, not {tuple(value.shape)}.")
    if value.dim() < 2:
        return value + change
    return value + change.float() * align_channels(changes[name + SCALE], value)


def align_channels(scale: Tensor, like: Tensor) -> Tensor:
    """Returns (channels,) with an axis of one for each further axis of ``like``."""
    return scale.view(-1, *[1] * (like.dim() - 1))
