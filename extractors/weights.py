"""A network with its weights: ``obtain`` finds the file, checks it, reads it safely and hands it to a builder.

weights/manifest.toml says what there is; ``python -m app weights`` brings it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar

import torch
from torch import nn

from extractors.checkpoint import Checkpoint
from extractors.checkpoint_file import read
from extractors.weights_folder import Found, WeightsFolder

Network = TypeVar("Network", bound=nn.Module)
#: published: what the paper's authors or a library trained. seeded: random and the same every time, for
#: tests and benchmarks; streams made by it say so where the sha256 stands.
Choice: TypeAlias = Literal["published", "seeded"]
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

    build: from a checkpoint, under the names it has in the file. blank: with initial weights.
    data: the data folder, by default REELWORD_DATA. Nothing is downloaded here. Raises WeightsError:
    WeightsMissing says which command brings the file or where to put it.
    """
    if choice == SEEDED:
        return seeded(blank), SEEDED
    found = find(name, data=data)
    return build(read(found.file, kept=found.converted)).eval(), found.sha256


def find(name: str, *, data: Path | None = None) -> Found:
    """The file of the network's weights, checked. Raises UnknownWeights, WeightsMissing or WeightsDamaged."""
    return WeightsFolder.of(data).find(name)


def seeded(blank: Callable[[], Network]) -> Network:
    """A network whose weights are random, and the same at every call; the caller's generator is left alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        return blank().eval()
