"""How a caption's length weighs against its log-probability when beams are ranked."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

_NAMED = re.compile(r"(wu|avg)_(\d+(?:\.\d+)?|\.\d+)")


@dataclass(frozen=True)
class LengthPenalty:
    """What a log-probability is divided by; n counts every token written, the end token included.

    power: n^A (A = 0 ranks by plain log-probability). wu: ((5 + n) / 6)^A, from Wu et al. 2016, eq. 14.
    avg: n, whatever A says. The last two are self-critical.pytorch's.
    """

    kind: Literal["power", "wu", "avg"]
    exponent: float

    @classmethod
    def parse(cls, option: float | str) -> LengthPenalty:
        """``0.5``, ``"wu_0.9"`` or ``"avg_1"``. Raises ValueError."""
        if isinstance(option, str):
            named = _NAMED.fullmatch(option)
            if named is None:
                raise ValueError(f'length_penalty must be a number, "wu_A" or "avg_A"; it is {option!r}')
            return cls("wu" if named[1] == "wu" else "avg", float(named[2]))
        if isinstance(option, bool) or not math.isfinite(option) or option < 0:
            raise ValueError(f"length_penalty must be a finite number of at least 0; it is {option!r}")
        return cls("power", float(option))

    def divisor(self, length: Tensor) -> Tensor:
        """length: float (…), at least 1. Never falls as the length grows."""
        if self.kind == "avg":
            return length
        base = length if self.kind == "power" else (5 + length) / 6
        return base**self.exponent
