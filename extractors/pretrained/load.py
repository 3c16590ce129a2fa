"""Loads networks with their weights: finds the file, checks it, reads it and hands it to a builder.

weights/manifest.toml says what there is; ``reelword weights`` brings it.
"""

import functools
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeVar

import torch
from torch import nn

from extractors.pretrained.checkpoint_file import read_checkpoint
from extractors.pretrained.errors import WrongCheckpoint
from extractors.pretrained.manifest import WeightsEntry
from extractors.pretrained.parameters import Checkpoint
from extractors.pretrained.weights_folder import FoundWeights, WeightsFolder

WeightsChoice = Literal["published", "seeded"]

Network = TypeVar("Network", bound=nn.Module)
#: Stands where the sha256 of a file would: in the name tags of streams that random weights made.
SEEDED = "seeded"
SEED = 20170522


def load_pretrained(
    name: str,
    choice: WeightsChoice,
    build: Callable[[Checkpoint], Network],
    blank: Callable[[], Network],
    *,
    data: Path | None = None,
) -> tuple[Network, str]:
    """Loads a network of the manifest. Nothing is downloaded here.

    Args:
        name: in the manifest.
        choice: "published" is what the paper's authors or a library trained; "seeded" is random and the same
            every time, for tests and benchmarks.
        build: makes the network of a checkpoint, under the names it has in the file.
        blank: makes it with initial weights.
        data: the data folder, by default REELWORD_DATA.

    Returns:
        The network in eval mode, and the sha256 of its file (or "seeded").

    Raises:
        WeightsError: WeightsMissing says which command brings the file or where to put it.
    """
    if choice == SEEDED:
        return build_seeded(blank), SEEDED
    weights = find_weights(name, data=data)
    try:
        return build(read_checkpoint(weights.file, kept=weights.converted)).eval(), weights.sha256
    except WrongCheckpoint as error:
        raise WrongCheckpoint(f"{weights.file}: {error}") from error


def digest_weights(name: str, choice: WeightsChoice) -> str:
    """Returns what ``load_pretrained`` says of the weights (sha256, or "seeded") without reading them.

    Raises UnknownWeights, WeightsMissing or WeightsDamaged.
    """
    return SEEDED if choice == SEEDED else find_weights(name).sha256


def find_weights(name: str, *, data: Path | None = None) -> FoundWeights:
    """Finds and checks the file of weights. Raises UnknownWeights, WeightsMissing or WeightsDamaged."""
    return WeightsFolder.of(data).find(name)


def build_seeded(blank: Callable[[], Network]) -> Network:
    """Builds a network of random weights, the same at every call; the caller's generator is left alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        return blank().eval()


CheckpointReader = Callable[[Checkpoint], nn.Module]


def find_reader(known: WeightsEntry) -> CheckpointReader | None:
    """Finds the function that the manifest names; None for a file that is not a checkpoint."""
    if known.reader is None:
        return None
    module, _, function = known.reader.partition(":")
    read: Callable[..., nn.Module] = getattr(importlib.import_module(module), function)
    return read if known.variant is None else functools.partial(read, known.variant)


def check_loads(known: WeightsEntry, file: Path) -> None:
    """Builds the network from the file. Raises WeightsDamaged or WrongCheckpoint where it cannot be."""
    reader = find_reader(known)
    if reader is None:
        return
    try:
        reader(read_checkpoint(file))
    except WrongCheckpoint as error:
        raise WrongCheckpoint(f"{file}: {error}") from error
