"""The sets by name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from training.datasets.coco import COCO
from training.datasets.data_set import DataSet
from training.datasets.errors import UnknownDataSet
from training.datasets.flickr8k import FLICKR8K
from training.datasets.folder import FOLDER
from training.datasets.msrvtt import MSRVTT
from training.datasets.msvd import MSVD
from training.datasets.mvad import MVAD
from training.datasets.vatex import VATEX

DATA_SETS: Mapping[str, DataSet] = {
    each.name: each for each in (MSVD, MSRVTT, VATEX, MVAD, FLICKR8K, COCO, FOLDER)
}


def data_set(name: str) -> DataSet:
    """By its name, whatever the case and without dashes. Raises UnknownDataSet."""
    known = DATA_SETS.get(name.lower().replace("-", "").replace("_", ""))
    if known is None:
        raise UnknownDataSet(f"There is no set called {name!r}.", f"There are: {', '.join(DATA_SETS)}.")
    return known


def recognised(root: Path) -> DataSet:
    """The set whose annotations lie in a folder, one's own where they are no known set's."""
    for each in DATA_SETS.values():
        if any(wanted.find(root) is not None for wanted in each.annotations if wanted.needed):
            return each
    return FOLDER
