"""Where networks run."""

from __future__ import annotations

import torch


def chosen_device(wanted: str) -> str:
    """``wanted`` itself, but for "auto": a GPU where there is one, else the CPU."""
    if wanted != "auto":
        return wanted
    return "cuda" if torch.cuda.is_available() else "cpu"
