"""Says and checks what can be asked of decoding: beams or draws, lengths and their weight, temperature."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal

from torch import Tensor


@dataclass(frozen=True)
class DecodingOptions:
    """Says how words are chosen. Raises ValueError, naming the option, for what cannot be done.

    Names follow self-critical.pytorch, except that ``length_penalty`` may be a plain exponent.
    """

    method: Literal["beam", "greedy", "sample"] = "beam"
    beam_size: int = 5  # beams a video; read by "beam" alone
    num_captions: int = 1  # captions returned a video, best first; 1 for "greedy"
    max_length: int = 20  # tokens at most; a caption that has not ended by then is cut, its end unscored
    length_penalty: float | str = 0.7  # score = log-probability / n^A, or "wu_A", "avg_A": LengthPenalty
    temperature: float = 1.0  # divides the log-probabilities, which are then normalised again
    top_k: int | None = None  # "sample": draw among the k likeliest words
    top_p: float | None = None  # "sample": draw among the fewest words that hold this much probability
    seed: int | None = None  # "sample": makes the draws repeatable for the same batch
    suppress_unk: bool = True  # never write <unk>
    block_trigrams: bool = False  # never write three words in a row that stand in the caption already
    decoding_constraint: bool = False  # never the same word twice in a row
    name_once: bool = True  # no word twice but those that name nothing: constraints.FUNCTION_WORDS
    remove_bad_endings: bool = False  # never end after an article or a preposition: constraints.BAD_ENDINGS
    group_size: int = 1  # "beam": number of groups of diverse beam search, each of beam_size / group_size
    diversity_lambda: float = 0.5  # what a word loses for each earlier group's beam that chose it
    fusion_rule: Literal["merit", "relevance"] = "merit"  # of fusion: models/combining/reranking.py
    attention: bool = True  # return the attention of every word

    def __post_init__(self) -> None:
        for name in ("beam_size", "num_captions", "max_length", "group_size"):
            self._require(name, _is_count(getattr(self, name)), "an integer of at least 1")
        self._require("method", self.method in ("beam", "greedy", "sample"), "'beam', 'greedy' or 'sample'")
        self._require("fusion_rule", self.fusion_rule in ("merit", "relevance"), "'merit' or 'relevance'")
        temperature, lam = self.temperature, self.diversity_lambda
        self._require("temperature", _is_number(temperature) and temperature > 0, "a number above 0")
        self._require("seed", self.seed is None or _is_integer(self.seed), "an integer or None")
        self._require("diversity_lambda", _is_number(lam) and lam >= 0, "a number of at least 0")
        LengthPenalty.parse(self.length_penalty)
        self._check_beams()
        self._check_sampling()

    def _check_beams(self) -> None:
        most = {"beam": self.beam_size, "greedy": 1}.get(self.method, self.num_captions)
        self._require("num_captions", self.num_captions <= most, f"at most {most} with {self.method!r}")
        if self.group_size > 1:
            self._require("group_size", self.method == "beam", "1 unless method is 'beam'")
            divides = self.beam_size % self.group_size == 0
            self._require("group_size", divides, f"a divisor of beam_size, {self.beam_size}")

    def _check_sampling(self) -> None:
        for name in ("top_k", "top_p"):
            given = getattr(self, name) is not None
            self._require(name, not given or self.method == "sample", "None unless method is 'sample'")
        self._require("top_k", self.top_k is None or _is_count(self.top_k), "an integer of at least 1")
        allowed = self.top_p is None or (_is_number(self.top_p) and 0 < self.top_p <= 1)
        self._require("top_p", allowed, "above 0 and at most 1")

    def _require(self, name: str, holds: bool, wanted: str) -> None:
        if not holds:
            raise ValueError(f"{name} must be {wanted}; it is {getattr(self, name)!r}")


_NAMED = re.compile(r"(wu|avg)_(\d+(?:\.\d+)?|\.\d+)")


@dataclass(frozen=True)
class LengthPenalty:
    """Divides log-probabilities by a function of length, so that captions of different lengths compare.

    n counts every token written, the end token included.

    power: n^A (A = 0 ranks by plain log-probability). wu: ((5 + n) / 6)^A, from Wu et al. 2016, eq. 14.
    avg: n, whatever A says. The last two are self-critical.pytorch's.
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
            return cls("wu" if named[1] == "wu" else "avg", float(named[2]))
        if isinstance(option, bool) or not math.isfinite(option) or option < 0:
            raise ValueError(f"length_penalty must be a finite number of at least 0; it is {option!r}")
        return cls("power", float(option))

    def divisor(self, length: Tensor) -> Tensor:
        """The divisor of lengths (…), floats of at least 1. It never falls as the length grows."""
        if self.kind == "avg":
            return length
        base = length if self.kind == "power" else (5 + length) / 6
        return base**self.exponent


def apply_temperature(log_probs: Tensor, temperature: float) -> Tensor:
    """Divides log-probabilities (R, V) by ``temperature`` and normalises them again."""
    if temperature == 1:
        return log_probs
    return (log_probs / temperature).log_softmax(1)


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
