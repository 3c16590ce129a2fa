"""Declares the rarer options of how a caption's words are searched, which a job may set too.

They mean what the options of the same names mean in models/decoding/options.py. A job that leaves one as it
is does not carry it in its record or in its answer.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import eq
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema, model_validator

MOST_DRAWN = 100_000
MOST_SEED = 2**53  #: the largest integer that every JSON reader keeps exact
SearchMethod = Literal["beam", "greedy", "sample"]
FusionRule = Literal["merit", "relevance"]


def _rare(default: Any, description: str, **bounds: Any) -> Any:
    """Declares a field that is left out of records and answers where it has its default."""
    is_default: Callable[[Any], bool] = partial(eq, default)
    return Field(default, description=description, exclude_if=is_default, **bounds)


class SearchOptions(BaseModel):
    """Holds how words are chosen, beside the beam, the length and its weight."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    method: SearchMethod = _rare(
        "beam", "How words are chosen: by a beam, greedily, or drawn at random (sample)."
    )
    temperature: float = _rare(
        1.0, "Divides log-probabilities: below 1 sharper, above 1 flatter.", gt=0, le=10
    )
    top_k: Annotated[int | None, WithJsonSchema({"type": "integer", "minimum": 1, "maximum": MOST_DRAWN})] = (
        _rare(None, "sample: draw among the k likeliest words.", ge=1, le=MOST_DRAWN)
    )
    top_p: Annotated[
        float | None, WithJsonSchema({"type": "number", "exclusiveMinimum": 0, "maximum": 1})
    ] = _rare(None, "sample: draw among the fewest likeliest words that hold this probability.", gt=0, le=1)
    seed: Annotated[int | None, WithJsonSchema({"type": "integer", "minimum": 0, "maximum": MOST_SEED})] = (
        _rare(None, "sample: the same seed draws the same captions again.", ge=0, le=MOST_SEED)
    )
    suppress_unk: bool = _rare(True, "Never write the mark of an unknown word.")
    block_trigrams: bool = _rare(False, "Never write three words in a row twice.")
    decoding_constraint: bool = _rare(False, "Never write a word twice in a row.")
    name_once: bool = _rare(True, "Write no word twice but those that name nothing.")
    remove_bad_endings: bool = _rare(False, "Never end after an article or a preposition.")
    group_size: int = _rare(1, "Groups of diverse beam search; a divisor of beam_size.", ge=1, le=20)
    diversity_lambda: float = _rare(
        0.5, "What a word loses for each earlier group's beam that chose it.", ge=0, le=10
    )
    fusion_rule: FusionRule = _rare(
        "merit", "fusion: candidates are ranked by merit, or by relevance alone as the paper does."
    )

    @model_validator(mode="after")
    def _fits_the_method(self) -> Self:
        for name in ("top_k", "top_p", "seed"):
            if getattr(self, name) is not None and self.method != "sample":
                raise ValueError(f"{name} is for drawn words: add method sample, or leave {name} out")
        if self.group_size > 1 and self.method != "beam":
            raise ValueError("group_size is for beams: leave it out, or choose the method beam")
        return self


SEARCH_FIELDS = tuple(SearchOptions.model_fields)
