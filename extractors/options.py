"""What every extractor can be told when it is made."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import torch

from extractors.engines import EngineName, Precision
from extractors.window_options import WindowOptions
from extractors.windows import Windows

Choice = Literal["published", "seeded"]


def default_cache() -> Path:
    """Below REELWORD_DATA, where what can be made again lies."""
    return Path(os.environ.get("REELWORD_DATA", "data")) / "cache"


@dataclass(frozen=True)
class ExtractorOptions:
    """How to make an extractor; each field has a default that works anywhere.

    device: of the torch engine; "cpu" lets OpenVINO run where it is installed. engine, precision: "auto" and
    None take what measured best for the kind of network. threads: of the engine, on a CPU. cache: folder of
    converted models. weights: "seeded" fills the network from a fixed seed, for tests and benchmarks, and
    the name tag says so. windows: None takes the network's own, WindowOptions
    changes some of its members.
    """

    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    engine: EngineName = "auto"
    precision: Precision | None = None
    threads: int = 1
    cache: Path = field(default_factory=default_cache)
    weights: Choice = "published"
    windows: Windows | WindowOptions | None = None

    def windows_over(self, own: Windows) -> Windows:
        """How videos are cut by an extractor whose own windows are these."""
        if isinstance(self.windows, WindowOptions):
            return self.windows.over(own)
        return self.windows or own
