"""A network with its weights: ``obtain`` finds the file, checks it, reads it and hands it to a builder.

weights/manifest.toml says what there is; ``python -m app weights`` brings it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import torch
from torch import nn

from extractors.checkpoint import Checkpoint
from extractors.checkpoint_file import read
from extractors.options import Choice
from extractors.weights_errors import WrongCheckpoint
from extractors.weights_folder import Found, WeightsFolder

Network = TypeVar("Network", bound=nn.Module)
#: Stands where the sha256 of a file would: in the name tags of streams that random weights made.
SEEDED = "seeded"
SEED = 20170522


def obtain(
    name: str,
    choice: Choice,
    build: Callable[[Checkpoint], Network],
    blank: Callable[[], Network],
    *,
    data: Path | None = None,
) -> tuple[Network, str]:
    """The network of that name in the manifest, in eval mode, and the sha256 of its file (or "seeded").

    choice: "published" is what the paper's authors or a library trained; "seeded" is random and the same
    every time, for tests and benchmarks.
    build: from a checkpoint, under the names it has in the file. blank: with initial weights.
    data: the data folder, by default REELWORD_DATA. Nothing is downloaded here. Raises WeightsError:
    WeightsMissing says which command brings the file or where to put it.
    """
    if choice == SEEDED:
        return seeded(blank), SEEDED
    found = find(name, data=data)
    try:
        return build(read(found.file, kept=found.converted)).eval(), found.sha256
    except WrongCheckpoint as error:
        raise WrongCheckpoint(f"{found.file}: {error}") from error


def find(name: str, *, data: Path | None = None) -> Found:
    """The file of the network's weights, checked. Raises UnknownWeights, WeightsMissing or WeightsDamaged."""
    return WeightsFolder.of(data).find(name)


def seeded(blank: Callable[[], Network]) -> Network:
    """A network of random weights, the same at every call; the caller's generator is left alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        return blank().eval()
