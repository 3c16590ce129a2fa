"""Base class of engines: a network ready to run in a chosen precision."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal

from torch import Tensor

Precision = Literal["fp32", "bf16", "fp16"]
EngineName = Literal["auto", "openvino", "compile", "torch"]


class NetworkEngine(ABC):
    """A network ready to run: rows (N, …) in, of any rank; float32 rows (N, …) out, one tensor an output.

    What comes out lies on the engine's device; its input may lie anywhere.
    """

    name: str
    precision: Precision

    @abstractmethod
    def outputs(self, pixels: Tensor) -> tuple[Tensor, ...]:
        """All that the network returns, in its order; one, where it returns a tensor."""

    def __call__(self, pixels: Tensor) -> Tensor:
        """The first output."""
        return self.outputs(pixels)[0]
