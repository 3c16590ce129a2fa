"""A tuned pair that is none: the packaged networks, their end moved by chance."""

from __future__ import annotations

import re
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from extractors.catalog.efficientnet_lite2 import load_packaged
from extractors.catalog.tuned_pair import PairEnd
from extractors.files import sha256_of
from extractors.pretrained.manifest import MANIFEST
from extractors.pretrained.parameters import SCALE, Checkpoint, align_channels
from extractors.pretrained.weights_folder import write_weights

LARGEST = 127


def quantize_delta(before: Checkpoint, after: Checkpoint) -> dict[str, Tensor]:
    """Computes the changes from one network's parameters to another's, each off by half a scale at most."""
    changes: dict[str, Tensor] = {}
    for name, value in after.items():
        change = (value.detach().double() - before[name].double()).cpu()
        if change.dim() < 2:
            changes[name] = change.float()
            continue
        largest = change.flatten(1).abs().amax(1)
        scale = (largest / LARGEST).float().clamp(min=torch.finfo(torch.float32).tiny)
        whole = (change / align_channels(scale.double(), change)).round().clamp(-LARGEST, LARGEST)
        changes[name], changes[name + SCALE] = whole.to(torch.int8), scale
    return changes


def save_changes(end: PairEnd, untouched: PairEnd, file: Path) -> str:
    """Writes what an end differs in from the untouched one; returns the file's sha256."""
    changes = quantize_delta(untouched.state_dict(), end.state_dict())
    with write_weights(file) as unfinished:
        save_file({name: change.contiguous() for name, change in changes.items()}, unfinished)
    return sha256_of(file)


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
