"""Finds and loads checkpoints in the folder of weights."""

from __future__ import annotations

from pathlib import Path

import torch

from models.captioners.registry import EMBEDDINGS, UnknownCaptioner
from models.checkpoint import Checkpoint, kind_of, load_checkpoint

WEIGHTS = Path(__file__).resolve().parent.parent / "weights"


def available(weights: Path = WEIGHTS) -> dict[str, Path]:
    """Captioner name → checkpoint file, for every demo checkpoint that is there.

    What a file holds is read in it; one that cannot be read is listed, and refused where it is loaded.
    """
    files = sorted(weights.glob("*.safetensors"))
    return {path.stem: path for path in files if kind_of(path) not in EMBEDDINGS}


def embedding_path(weights: Path = WEIGHTS) -> Path | None:
    """The file of the semantic embedding that chooses among captions, whatever it is called."""
    files = sorted(weights.glob("*.safetensors"))
    return next((path for path in files if kind_of(path) in EMBEDDINGS), None)


def load_captioner(name: str, device: torch.device | str = "cpu", weights: Path = WEIGHTS) -> Checkpoint:
    """A demo captioner by name, or any checkpoint by its path.

    Raises UnknownCaptioner, or CheckpointError for a damaged file.
    """
    return load_checkpoint(checkpoint_path(name, weights), device)


def checkpoint_path(name: str, weights: Path = WEIGHTS) -> Path:
    """The file of a demo captioner, or ``name`` itself where it is a checkpoint's path.

    Raises UnknownCaptioner.
    """
    path = available(weights).get(name, Path(name))
    if path.suffix != ".safetensors" or not path.is_file():
        known = ", ".join(available(weights)) or "none (train one with `python -m app train stats`)"
        raise UnknownCaptioner(f"there is no captioner {name!r}; there are: {known}")
    return path
