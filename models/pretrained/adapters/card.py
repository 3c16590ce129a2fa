"""Describes an adapter in its folder: of which captioner it is, and how it was trained.

adapter_config.json, adapter_model.safetensors    peft's own
reelword.json                                     its card
README.md                                         the same for people
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"
#: How the families call them; GPT-2 has queries, keys and values in one.
QUERIES_AND_VALUES = ("query", "value", "q_proj", "v_proj", "c_attn", "q_attn")


class LoraOptions(BaseModel):
    """Says how large adapters are and where they lie."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rank: int = Field(8, ge=1)
    alpha: float = Field(16.0, gt=0)  #: what is added is alpha / rank of the product
    #: The last parts of the names of the decoder's layers that get one.
    targets: tuple[str, ...] = QUERIES_AND_VALUES


class AdapterBase(BaseModel):
    """The captioner that an adapter changes, as its card had it. revision: None of one from a folder."""

    model_config = ConfigDict(frozen=True)

    name: str
    source: str
    revision: str | None
    weights_sha256: str

    @property
    def origin(self) -> str:
        """Where it came from, with its revision."""
        return self.source if self.revision is None else f"{self.source}@{self.revision}"


class AdapterCard(BaseModel):
    """What is said of an adapter beside its weights."""

    model_config = ConfigDict(frozen=True)

    base: AdapterBase
    training: Mapping[str, Any] = {}  #: the recipe's numbers, the set, when the weights were chosen
    scores: Mapping[str, Any] = {}  #: by the videos that chose the weights
