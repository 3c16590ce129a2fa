"""A manifest of its own for a test, whose weights are those of a small network that is made here."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from extractors.pretrained.parameters import Checkpoint, load_strict

TERMS = {"licence": "CC0-1.0", "paper": "none", "preprocessing": "none", "keys": "ours"}


class TwoLayers(nn.Module):
    """Two layers; in training mode as it is built, which readers end."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 2)
        self.norm = nn.BatchNorm1d(2)


def from_checkpoint(checkpoint: Checkpoint) -> TwoLayers:
    """What manifests name as the reader."""
    return load_strict(TwoLayers(), checkpoint)


def small_checkpoint(file: Path, seed: int = 0) -> Path:
    """A file of weights, the same for a seed whatever its name (which torch would write into it)."""
    file.parent.mkdir(parents=True, exist_ok=True)
    content = io.BytesIO()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        torch.save(TwoLayers().state_dict(), content)
    file.write_bytes(content.getvalue())
    return file


def write_manifest(file: Path, **entries: Mapping[str, Any]) -> Path:
    """Entries by name, with terms and the reader of ``TwoLayers`` where they give none."""
    reader = {"reader": "tests.extractors.manifests:from_checkpoint"}
    lines = []
    for name, entry in entries.items():
        lines.append(f"[{name}]")
        table = {**TERMS, **reader, "path": "small.pth", **entry}
        lines += [f"{key} = {json.dumps(value)}" for key, value in table.items() if value is not None]
    file.write_text("\n".join(lines))
    return file
