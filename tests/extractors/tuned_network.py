"""A tuned pair that is none: the packaged networks, their end moved by chance."""

from __future__ import annotations

from pathlib import Path

import torch

from extractors.catalog.efficientnet_lite2 import load_packaged
from extractors.catalog.tuned_pair import PairEnd, save_changes
from extractors.pretrained.manifest import MANIFEST
from lab.checkpoints.pack_tuned import note_facts


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
    text = note_facts(MANIFEST.read_text(), digest, file.stat().st_size)
    (folder / "manifest.toml").write_text(text)
    return file
