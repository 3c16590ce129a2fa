"""Describes an adapter in its folder: of which captioner it is, and how it was trained.

adapter_config.json, adapter_model.safetensors    peft's own
reelword.json                                     its card
README.md                                         the same for people
"""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"
#: One of Reelword's own captioners in a repository; README.md lies beside it.
CHECKPOINT = "reelword.safetensors"


class AdapterBase(BaseModel, frozen=True):
    """Names the captioner that an adapter changes, as its card had it; one from a folder has no revision."""

    name: str
    source: str
    revision: str | None
    weights_sha256: str

    @property
    def origin(self) -> str:
        """Names where it came from, with its revision."""
        return self.source if self.revision is None else f"{self.source}@{self.revision}"


class AdapterCard(BaseModel, frozen=True):
    """Describes an adapter beside its weights."""

    base: AdapterBase
    training: Mapping[str, Any] = {}  #: the recipe's numbers, the set, when the weights were chosen
    scores: Mapping[str, Any] = {}  #: by the videos that chose the weights
