"""A tuned pair that is none: the packaged networks, their end moved by chance."""

from __future__ import annotations

import re
from pathlib import Path

import torch

from extractors.catalog.efficientnet_lite2 import load_packaged
from extractors.catalog.tuned_pair import PairEnd, save_changes
from extractors.pretrained.manifest import MANIFEST


def moved(end: PairEnd, by: float = 0.01, seed: int = 1) -> PairEnd:
    """The same with every parameter moved by chance, every fifth channel's not at all."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in end.parameters():
            change = by * torch.randn(parameter.shape, generator=generator)
            change[::5] = 0
            parameter.add_(change)
    return end


def write_tuned(folder: Path, seed: int = 1) -> Path:
    """The changes of one below ``folder``, beside the whole manifest that knows them: manifest.toml there."""
    file = folder / "networks" / "tuned_pair.safetensors"
    digest = save_changes(moved(PairEnd(load_packaged()), seed=seed), PairEnd(load_packaged()), file)
    before, head, table = MANIFEST.read_text().partition("[tuned_pair]\n")
    for fact, value in (("sha256", f'"{digest}"'), ("bytes", str(file.stat().st_size))):
        table = re.sub(rf"(?m)^{fact} = .*$", f"{fact} = {value}", table, count=1)
    (folder / "manifest.toml").write_text(before + head + table)
    return file
