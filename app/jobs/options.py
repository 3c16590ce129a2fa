"""Declares what a caller may ask for: one value for the HTTP form, the command line, the job record and the
engine.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from operator import eq
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

FUSION, ENSEMBLE = "fusion", "ensemble"
NAME_LENGTH = 64
PROMPT_LENGTH = 500
MOST_CATEGORY = 999
MOST_DRAWN = 100_000
MOST_SEED = 2**53  #: the largest integer that every JSON reader keeps exact
SearchMethod = Literal["beam", "greedy", "sample"]
FusionRule = Literal["merit", "relevance"]
COMBINATIONS = (FUSION, ENSEMBLE)
"""Captioners that are made of others."""


NAMES_PATTERN = r"^\s*[^,\s][^,]*(,\s*[^,\s][^,]*)*$"
"""Names with commas between them, as a form has them; that none comes twice no pattern can say."""


def _names(given: object) -> object:
    """Splits ``g2l,stats``, as the form and the command line have it, into names. Raises ValueError."""
    names = [part.strip() for part in given.split(",")] if isinstance(given, str) else given
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        return given
    if not names or not all(names):
        raise ValueError("members are names of captioners with commas between them, and none is empty")
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise ValueError(f"members name {twice[0]} more than once: name each captioner once")
    return tuple(names)


Members = Annotated[
    tuple[str, ...] | None,
    BeforeValidator(_names),
    WithJsonSchema({"type": "string", "pattern": NAMES_PATTERN, "examples": ["g2l,stats"]}),
]


SEGMENTS_PATTERN = r"^\s*(shots|none|[0-9]+(\.[0-9]+)?)\s*$"
LEAST_SEGMENT, MOST_SEGMENT = 0.5, 86400.0
"""Seconds of a segment, where segments are asked for by their length."""


def _segments(given: object) -> object:
    """Reads ``shots``, ``none`` or seconds, as the form has them. Raises ValueError."""
    if isinstance(given, int | float) and not isinstance(given, bool):
        given = f"{given:f}"
    if not isinstance(given, str):
        return given
    word = given.strip()
    if not re.fullmatch(SEGMENTS_PATTERN, word):
        raise ValueError("segments are shots, none, or a number of seconds such as 10")
    if word in ("shots", "none"):
        return word
    if not LEAST_SEGMENT <= float(word) <= MOST_SEGMENT:
        raise ValueError(f"a segment lasts from {LEAST_SEGMENT:g} to {MOST_SEGMENT:g} seconds")
    return f"{float(word):g}"


Segments = Annotated[
    str | None,
    BeforeValidator(_segments),
    WithJsonSchema({"type": "string", "pattern": SEGMENTS_PATTERN, "examples": ["shots", "none", "10"]}),
]


def _prompt(given: object) -> object:
    """Takes off the white space around a prompt. Raises ValueError where nothing is left."""
    if isinstance(given, str) and not (given := given.strip()):
        raise ValueError("a prompt has words; leave it out to ask what the captioner asks by itself")
    return given


@dataclass(frozen=True)
class CaptionerChoice:
    """Names who writes. members: of fusion or ensemble, in order; empty for a captioner that writes alone."""

    captioner: str
    members: tuple[str, ...] = ()

    @property
    def writers(self) -> tuple[str, ...]:
        """Lists the captioners that have to be there."""
        return self.members or (self.captioner,)


def _rare(default: Any, description: str, **bounds: Any) -> Any:
    """Declares a field that is left out of records and answers where it has its default."""
    is_default: Callable[[Any], bool] = partial(eq, default)
    return Field(default, description=description, exclude_if=is_default, **bounds)


class SearchOptions(BaseModel):
    """Holds how words are chosen, beside the beam, the length and its weight: the rarer options.

    They mean what the options of the same names mean in models/decoding/options.py. A job that leaves one as
    it is does not carry it in its record or in its answer.
    """

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


def _is_absent(value: object) -> bool:
    return value is None


class CaptionOptions(SearchOptions):
    """Holds the options of one captioning job.

    Bounds keep the cost of a job within a small factor of the default's.
    """

    captioner: Annotated[
        str | None, WithJsonSchema({"type": "string", "minLength": 1, "maxLength": NAME_LENGTH})
    ] = Field(
        None,
        min_length=1,
        max_length=NAME_LENGTH,
        description="Which captioner writes; GET /models lists them and names the one that is the default.",
    )
    members: Members = Field(
        None,
        description="Captioners that fusion or ensemble is made of, with commas between them; GET /models "
        "says which by default.",
    )
    beam_size: int = Field(5, ge=1, le=20, description="Hypotheses kept at each word; 1 is greedy search.")
    num_captions: int = Field(1, ge=1, le=20, description="How many captions, best first; at most beam_size.")
    max_length: int = Field(20, ge=1, le=50, description="Most words in a caption.")
    attention: bool = Field(True, description="Keep, for each word, where the captioner looked.")
    segments: Segments = Field(
        None,
        description="How a film is cut into segments that are captioned each: by its shots, by so many "
        "seconds, or none. Without it: none below a minute, shots from there on.",
    )
    segment_captioner: Annotated[
        str | None, WithJsonSchema({"type": "string", "minLength": 1, "maxLength": NAME_LENGTH})
    ] = Field(
        None,
        min_length=1,
        max_length=NAME_LENGTH,
        exclude_if=_is_absent,
        description="Which captioner writes the segments of a film, such as one of pictures alone, which is "
        "many times faster than one of motion. Without it: the film's own.",
    )
    prompt: Annotated[
        str | None,
        BeforeValidator(_prompt),
        WithJsonSchema({"type": "string", "pattern": r"\S", "maxLength": PROMPT_LENGTH}),
    ] = Field(
        None,
        max_length=PROMPT_LENGTH,
        description="What the captioner is asked, or goes on from; for captioners that take one, as "
        "GET /models says.",
    )
    length_penalty: float = Field(
        0.7, ge=0, le=2, description="Captions are ranked by log-probability / length ** length_penalty."
    )

    category: Annotated[
        int | None, WithJsonSchema({"type": "integer", "minimum": 0, "maximum": MOST_CATEGORY})
    ] = Field(
        None,
        ge=0,
        le=MOST_CATEGORY,
        exclude_if=_is_absent,
        description="What kind of video it is, by its number in the captioner's training set; for captioners "
        "that know such classes, as GET /models says.",
    )

    @property
    def choice(self) -> CaptionerChoice | None:
        """Tells who writes; None where that is still to be chosen (app/jobs/captioner_choice.py)."""
        is_open = self.captioner is None or (self.captioner in COMBINATIONS and not self.members)
        return None if is_open else CaptionerChoice(str(self.captioner), self.members or ())

    @property
    def of_segments(self) -> Self:
        """Options of a film's segments: without what belongs to the film's captioner where it is another."""
        if self.segment_captioner is None:
            return self
        film_alone = dict.fromkeys(("members", "segment_captioner", "prompt", "category"))
        return self.model_copy(update={**film_alone, "captioner": self.segment_captioner})

    def with_choice(self, choice: CaptionerChoice) -> Self:
        """Fills in what was left open of who writes."""
        return self.model_copy(update={"captioner": choice.captioner, "members": choice.members or None})

    @model_validator(mode="after")
    def _captions_fit_the_beam(self) -> CaptionOptions:
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

    @model_validator(mode="after")
    def _members_have_somebody_to_be_members_of(self) -> CaptionOptions:
        if self.members is not None and self.captioner not in COMBINATIONS:
            named = "the default captioner" if self.captioner is None else self.captioner
            raise ValueError(
                f"members go with the captioner {' or '.join(COMBINATIONS)}, and not with {named}: "
                "choose one of those, or leave members out"
            )
        if self.fusion_rule != "merit" and self.captioner != FUSION:
            raise ValueError("fusion_rule goes with the captioner fusion: choose that, or leave it out")
        return self


FORM_FIELDS = (
    "captioner", "members", "beam_size", "num_captions", "max_length", "attention", "segments",
    "segment_captioner", "prompt", "length_penalty", *SEARCH_FIELDS, "category",
)  # fmt: skip
"""The options that ``POST /caption`` takes, in the order in which they are documented."""


def form_schema() -> dict[str, dict[str, Any]]:
    """Makes the JSON Schema of each form field.

    A default of null is left out: it means that the field is absent.
    """
    options = CaptionOptions.model_json_schema()["properties"]
    return {
        name: {key: value for key, value in options[name].items() if (key, value) != ("default", None)}
        for name in FORM_FIELDS
    }
