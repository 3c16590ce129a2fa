"""Published checkpoints: taken out of what wraps them, and loaded so that nothing is missed in silence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from torch import Tensor, nn

from extractors.weights_errors import WrongCheckpoint

__all__ = ["COUNTER", "Checkpoint", "WrongCheckpoint", "bare", "classes", "load"]

Network = TypeVar("Network", bound=nn.Module)
Checkpoint = Mapping[str, Tensor]

#: Counts batches in training; old files lack it, and nothing here reads it.
COUNTER = "num_batches_tracked"


def bare(checkpoint: Checkpoint) -> dict[str, Tensor]:
    """Parameters by name, without the ``module.`` that DataParallel writes before each."""
    return {name.removeprefix("module."): value for name, value in checkpoint.items()}


def classes(parameters: Checkpoint, classifier: str) -> int:
    """How many classes the weight of this name tells apart. Raises WrongCheckpoint where there is none."""
    if classifier not in parameters:
        raise WrongCheckpoint(f"Not the checkpoint that was expected: it has no {classifier}.")
    return parameters[classifier].shape[0]


def load(network: Network, parameters: Checkpoint) -> Network:
    """The network with these parameters (named as its own), in eval mode.

    Raises WrongCheckpoint where one is missing, left over or of another shape; counters of batches may be.
    """
    wanted = {name: value for name, value in network.state_dict().items() if not name.endswith(COUNTER)}
    given = {name: value for name, value in parameters.items() if not name.endswith(COUNTER)}
    problems = [f"{name} is missing" for name in wanted.keys() - given.keys()]
    problems += [f"{name} is left over" for name in given.keys() - wanted.keys()]
    problems += [
        f"{name} is {tuple(given[name].shape)}, not {tuple(wanted[name].shape)}"
        for name in wanted.keys() & given.keys()
        if given[name].shape != wanted[name].shape
    ]
    if problems:
        raise WrongCheckpoint(
            f"Not a checkpoint of {type(network).__name__}: {len(problems)} parameters do not fit; "
            + "; ".join(sorted(problems)[:4])
            + "."
        )
    network.load_state_dict(given, strict=False)
    return network.eval()
