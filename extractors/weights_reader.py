"""Which function of ours takes the checkpoint of an entry, and whether a file is one that it takes."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from pathlib import Path

from torch import nn

from extractors.checkpoint import Checkpoint
from extractors.checkpoint_file import read
from extractors.weights_errors import WrongCheckpoint
from extractors.weights_manifest import Entry

Reader = Callable[[Checkpoint], nn.Module]


def reader_of(known: Entry) -> Reader | None:
    """The function that the manifest names, with its variant; None for a file that is not a checkpoint."""
    if known.reader is None:
        return None
    module, _, function = known.reader.partition(":")
    found: Callable[..., nn.Module] = getattr(importlib.import_module(module), function)
    return found if known.variant is None else functools.partial(found, known.variant)


def look_at(known: Entry, file: Path) -> None:
    """Builds the network from the file. Raises WeightsDamaged or WrongCheckpoint where it cannot be."""
    reader = reader_of(known)
    if reader is None:
        return
    try:
        reader(read(file))
    except WrongCheckpoint as error:
        raise WrongCheckpoint(f"{file}: {error}") from error
