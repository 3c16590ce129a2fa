"""Declares what can be asked of decoding: beams or draws, lengths, temperature.

This is the one declaration of these options: the HTTP form and the job's record (app/jobs/options.py), the
options of the command line and the search in a recipe are made of it; a job's bounds are added there. It
imports no torch, as the API's image carries it.
"""

from collections.abc import Callable, Sequence
from functools import partial
from operator import eq
from typing import Any, Literal, Self

from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator

from models.decoding.length_penalty import LengthPenalty


def rare(default: Any, description: str, **bounds: Any) -> Any:
    """Declares an option that is left out of what is written of a search where it has its default.

    What was written before the option existed reads the same, and so do the names of caches made of it.
    """
    is_default: Callable[[Any], bool] = partial(eq, default)
    return Field(default, description=description, exclude_if=is_default, **bounds)


class DecodingOptions(BaseModel, frozen=True, extra="forbid", strict=True):
    """Holds how words are chosen. Raises ValidationError, naming the option, for what cannot be done.

    Names follow self-critical.pytorch, except that ``length_penalty`` may be a plain exponent.
    """

    method: Literal["beam", "greedy", "sample"] = rare(
        "beam", "How words are chosen: by a beam, greedily, or drawn at random (sample)."
    )
    beam_size: int = Field(5, ge=1, description="Hypotheses kept at each word; 1 is greedy search.")
    num_captions: int = Field(1, ge=1, description="How many captions, best first; at most beam_size.")
    # tokens; a caption that has not ended by then is cut, its end unscored
    max_length: int = Field(20, ge=1, description="Most words in a caption.")
    # or "wu_A", "avg_A": length_penalty.py
    length_penalty: float | str = Field(
        0.7, description="Captions are ranked by log-probability / length ** length_penalty."
    )
    temperature: float = rare(
        1.0, "Divides log-probabilities: below 1 sharper, above 1 flatter.", gt=0, allow_inf_nan=False
    )
    top_k: int | None = rare(None, "sample: draw among the k likeliest words.", ge=1)
    top_p: float | None = rare(
        None, "sample: draw among the fewest likeliest words that hold this probability.", gt=0, le=1
    )
    # repeats for the same batch of videos
    seed: int | None = rare(None, "sample: the same seed draws the same captions again.", ge=0)
    suppress_unk: bool = rare(True, "Never write the mark of an unknown word.")
    block_trigrams: bool = rare(False, "Never write three words in a row twice.")
    decoding_constraint: bool = rare(False, "Never write a word twice in a row.")
    # constraints.FUNCTION_WORDS
    name_once: bool = rare(True, "Write no word twice but those that name nothing.")
    # constraints.BAD_ENDINGS
    remove_bad_endings: bool = rare(False, "Never end after an article or a preposition.")
    # each group has beam_size / group_size beams
    group_size: int = rare(1, "Groups of diverse beam search; a divisor of beam_size.", ge=1)
    diversity_lambda: float = rare(
        0.5, "What a word loses for each earlier group's beam that chose it.", ge=0, allow_inf_nan=False
    )
    # models/combining/reranking.py
    fusion_rule: Literal["merit", "relevance"] = rare(
        "merit", "fusion: candidates are ranked by merit, or by relevance alone as the paper does."
    )
    attention: bool = Field(True, description="Keep, for each word, from which moment and place it comes.")
    # models/evidence/
    explanation: Literal["evidence", "attention", "both"] = rare(
        "evidence",
        "What tells that: what each word needs (evidence), or where the captioner looked (attention).",
    )

    #: Is called with the best words so far at each step of a beam; no option, and never stored.
    _listener: Callable[[Sequence[str]], None] | None = None

    @property
    def listener(self) -> Callable[[Sequence[str]], None] | None:
        return self._listener

    def heard_by(self, listener: Callable[[Sequence[str]], None]) -> Self:
        """Returns the same search, of one video, whose best words so far are told as they are written."""
        heard = self.model_copy()
        heard._listener = listener
        return heard

    def changed(self, **changes: Any) -> Self:
        """Returns the same search with some options changed, unheard. Raises ValidationError."""
        return type(self)(**{**dict(self), **changes})

    @field_validator("length_penalty")
    @classmethod
    def _penalty_can_be_read(cls, penalty: float | str) -> float | str:
        LengthPenalty.parse(penalty)
        return penalty

    @model_validator(mode="after")
    def _draws_are_of_the_method_sample(self) -> Self:
        for name in ("top_k", "top_p", "seed"):
            if getattr(self, name) is not None and self.method != "sample":
                raise ValueError(f"{name} is for drawn words: add method sample, or leave {name} out")
        return self

    @model_validator(mode="after")
    def _beams_fit(self) -> Self:
        if self.group_size > 1 and self.method != "beam":
            raise ValueError("group_size is for beams: leave it out, or choose the method beam")
        if self.method == "greedy" and self.num_captions > 1:
            raise ValueError(f"num_captions ({self.num_captions}) is 1 with the method greedy")
        if self.method == "beam" and self.beam_size % self.group_size:
            raise ValueError(
                f"group_size ({self.group_size}) must divide beam_size ({self.beam_size}) into equal groups"
            )
        if self.method == "beam" and self.num_captions > self.beam_size:
            raise ValueError(
                f"num_captions ({self.num_captions}) cannot exceed beam_size ({self.beam_size}): "
                "a beam of k hypotheses ends as at most k captions"
            )
        return self


def first_fault(error: ValidationError) -> tuple[str, str]:
    """Returns the option that is wrong first, "" where several do not go together, and what is wrong."""
    fault = error.errors(include_url=False)[0]
    name = str(fault["loc"][0]) if fault["loc"] else ""
    return name, fault["msg"].removeprefix("Value error, ")
