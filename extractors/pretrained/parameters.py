"""Puts checkpoints into networks strictly, adds changes to them, and fills networks with random weights."""

from collections.abc import Mapping
from typing import TypeVar

from torch import Tensor, nn

from extractors.pretrained.errors import WrongCheckpoint

__all__ = ["COUNTER", "Checkpoint", "WrongCheckpoint", "count_classes", "load_strict", "unwrap"]

Network = TypeVar("Network", bound=nn.Module)
Checkpoint = Mapping[str, Tensor]

#: Counts batches in training; old files lack it, and nothing here reads it.
COUNTER = "num_batches_tracked"


def unwrap(checkpoint: Checkpoint) -> dict[str, Tensor]:
    """Takes off the ``module.`` that DataParallel writes before each parameter's name."""
    return {name.removeprefix("module."): value for name, value in checkpoint.items()}


def count_classes(parameters: Checkpoint, classifier: str) -> int:
    """Counts the classes that the weight ``classifier`` tells apart. Raises WrongCheckpoint without it."""
    if classifier not in parameters:
        raise WrongCheckpoint(f"Not the checkpoint that was expected: it has no {classifier}.")
    return parameters[classifier].shape[0]


def load_strict(network: Network, parameters: Checkpoint) -> Network:
    """Loads parameters (named as the network's own), and puts it in eval mode.

    Raises WrongCheckpoint where one is missing, left over or of another shape; counters of batches may be.
    """
    expected = {name: value for name, value in network.state_dict().items() if not name.endswith(COUNTER)}
    loaded = {name: value for name, value in parameters.items() if not name.endswith(COUNTER)}
    problems = [f"{name} is missing" for name in expected.keys() - loaded.keys()]
    problems += [f"{name} is left over" for name in loaded.keys() - expected.keys()]
    problems += [
        f"{name} is {tuple(loaded[name].shape)}, not {tuple(expected[name].shape)}"
        for name in expected.keys() & loaded.keys()
        if loaded[name].shape != expected[name].shape
    ]
    if problems:
        raise WrongCheckpoint(
            f"Not a checkpoint of {type(network).__name__}: {len(problems)} parameters do not fit; "
            + "; ".join(sorted(problems)[:4])
            + "."
        )
    network.load_state_dict(loaded, strict=False)
    return network.eval()


#: What a block adds to its shortcut, as a share: over 50 blocks the signal grows about fivefold.
SHARE = 0.25


def randomize(network: Network, last_norm: str | None = None) -> Network:
    """Gives a network He's weights (arXiv:1502.01852), under which it still tells pictures apart.

    Torch's own initial weights let the signal fade to nothing in a deep network whose batch norms have seen
    no data, and He's alone let it grow without bound along shortcuts.

    last_norm: how the names end of the norms after which a block meets its shortcut.
    """
    for name, layer in network.named_modules():
        if isinstance(layer, (nn.Conv2d, nn.Conv3d, nn.Linear)):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
        elif last_norm is not None and name.endswith(last_norm):
            nn.init.constant_(layer.get_parameter("weight"), SHARE)
    return network


#: End of a scale's name: a change is a whole number of -127 to 127 for each weight, and a scale for each
#: output channel; what has one number a channel (a bias) is kept exactly.
SCALE = ".scale"


def apply_delta(before: Checkpoint, changes: Checkpoint) -> dict[str, Tensor]:
    """Adds changes to a network's parameters, each of which is off by half a scale at most then.

    changes: by the parameter's name int8 of its shape, with NAME.scale, float32 (channels,); or float32 as it
    is. Raises WrongCheckpoint where they are not of these parameters.
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
