"""Weighs captions of different lengths against each other.

A caption's score is its log-probability over a divisor that grows with its length; without one the shortest
would win, as each word makes a caption less likely. What asks here:

* ``decode.py`` ranks the captions that were written by ``score``.
* ``beam.py`` ends a search when no open beam could still reach the scores kept: ``highest_score``.
* ``options.py`` checks what is asked for by ``parse``.
* ``models/pretrained/options.py`` hands ``exponent`` to transformers, which ranks by itself.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch import Tensor

_NAMED = re.compile(r"(wu|avg)_(\d+(?:\.\d+)?|\.\d+)")


@dataclass(frozen=True)
class LengthPenalty:
    """Divides log-probabilities by a function of length n, the end token included.

    power: n^A (A = 0 ranks by plain log-probability). wu: ((5 + n) / 6)^A, from Wu et al. 2016, eq. 14.
    avg: n, its exponent 1 whatever A says. The last two are self-critical.pytorch's.
    """

    kind: Literal["power", "wu", "avg"]
    exponent: float

    @classmethod
    def parse(cls, option: float | str) -> LengthPenalty:
        """Reads ``0.5``, ``"wu_0.9"`` or ``"avg_1"``. Raises ValueError for anything else."""
        if isinstance(option, str):
            named = _NAMED.fullmatch(option)
            if named is None:
                raise ValueError(f'length_penalty must be a number, "wu_A" or "avg_A"; it is {option!r}')
            return cls("wu", float(named[2])) if named[1] == "wu" else cls("avg", 1.0)
        if isinstance(option, bool) or not math.isfinite(option) or option < 0:
            raise ValueError(f"length_penalty must be a finite number of at least 0; it is {option!r}")
        return cls("power", float(option))

    def divisor(self, length: Tensor) -> Tensor:
        """Returns the divisor of lengths (…), floats of at least 1. It never falls as the length grows."""
        if self.kind == "avg":
            return length
        base = length if self.kind == "power" else (5 + length) / 6
        return base**self.exponent

    def score(self, total: Tensor, length: Tensor) -> Tensor:
        """Returns the scores of captions of log-probabilities ``total`` (…) and lengths (…)."""
        return total / self.divisor(length.to(total.dtype))

    def highest_score(self, total: Tensor, max_length: int) -> Tensor:
        """Returns what open beams of log-probabilities ``total`` (…) can reach at best.

        Log-probabilities are at most 0 and divisors never fall with length, so that is their total kept up to
        the greatest length.
        """
        return total / self.divisor(total.new_tensor(float(max_length)))
