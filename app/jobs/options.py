"""Declares what a caller may ask for: one value for the HTTP form, the command line, the job record and the
engine.
"""

import re
from copy import copy
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from models.decoding.options import DecodingOptions, rare

FUSION, ENSEMBLE = "fusion", "ensemble"
NAME_LENGTH = 64
PROMPT_LENGTH = 500
MOST_CATEGORY = 999
MOST_SEED = 2**53  #: the largest integer that every JSON reader keeps exact
COMBINATIONS = (FUSION, ENSEMBLE)
"""Captioners that are made of others."""


NAMES_PATTERN = r"^\s*[^,\s][^,]*(,\s*[^,\s][^,]*)*$"
"""Names with commas between them, as a form has them; that none comes twice no pattern can say."""


def _names(value: object) -> object:
    """Splits ``g2l,stats``, as the form and the command line have it, into names. Raises ValueError."""
    names = [part.strip() for part in value.split(",")] if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        return value
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


def _segments(value: object) -> object:
    """Reads ``shots``, ``none`` or seconds, as the form has them. Raises ValueError."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = f"{value:f}"
    if not isinstance(value, str):
        return value
    word = value.strip()
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


def _prompt(value: object) -> object:
    """Takes off the white space around a prompt. Raises ValueError where nothing is left."""
    if isinstance(value, str) and not (value := value.strip()):
        raise ValueError("a prompt has words; leave it out to ask what the captioner asks by itself")
    return value


@dataclass(frozen=True)
class CaptionerChoice:
    """Names who writes."""

    captioner: str
    #: Of fusion or ensemble, in order; empty for a captioner that writes alone.
    members: tuple[str, ...] = ()

    @property
    def writers(self) -> tuple[str, ...]:
        """Lists the captioners that have to be there."""
        return self.members or (self.captioner,)


def _within(name: str, **bounds: Any) -> Any:
    """Declares an option of decoding with the bounds that a job keeps to."""
    field = copy(DecodingOptions.model_fields[name])
    field.metadata = [*field.metadata, *Field(**bounds).metadata]
    return field


class CaptionOptions(DecodingOptions):
    """Holds the options of one captioning job: those of decoding, within bounds, and who writes of what.

    The bounds keep the cost of a job within a small factor of the default's.
    """

    model_config = ConfigDict(strict=False)  # a form has texts

    beam_size: int = _within("beam_size", le=20)
    num_captions: int = _within("num_captions", le=20)
    max_length: int = _within("max_length", le=50)
    length_penalty: float = _within("length_penalty", ge=0, le=2)
    temperature: float = _within("temperature", le=10)
    top_k: int | None = _within("top_k", le=100_000)
    seed: int | None = _within("seed", le=MOST_SEED)
    group_size: int = _within("group_size", le=20)
    diversity_lambda: float = _within("diversity_lambda", le=10)

    captioner: str | None = Field(
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
    segments: Segments = Field(
        None,
        description="How a film is cut into segments that are captioned each: by its shots, by so many "
        "seconds, or none. Without it: none below a minute, shots from there on.",
    )
    segment_captioner: str | None = rare(
        None,
        "Which captioner writes the segments of a film, such as one of pictures alone, which is many times "
        "faster than one of motion. Without it: the film's own.",
        min_length=1,
        max_length=NAME_LENGTH,
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
    bars: Literal["leave_out", "keep"] = rare(
        "leave_out", "Whether even bars around a film's picture are left out or kept for the captioner."
    )
    category: int | None = rare(
        None,
        "What kind of video it is, by its number in the captioner's training set; for captioners that know "
        "such classes, as GET /models says.",
        ge=0,
        le=MOST_CATEGORY,
    )

    @property
    def choice(self) -> CaptionerChoice | None:
        """Returns who writes; None where that is still to be chosen (app/jobs/captioner_choice.py)."""
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
    def _members_have_somebody_to_be_members_of(self) -> Self:
        if self.members is not None and self.captioner not in COMBINATIONS:
            named = "the default captioner" if self.captioner is None else self.captioner
            raise ValueError(
                f"members go with the captioner {' or '.join(COMBINATIONS)}, and not with {named}: "
                "choose one of those, or leave members out"
            )
        if self.fusion_rule != "merit" and self.captioner != FUSION:
            raise ValueError("fusion_rule goes with the captioner fusion: choose that, or leave it out")
        return self


#: The options that ``POST /caption`` takes, in the order in which they are documented.
FORM_FIELDS = tuple(sorted(CaptionOptions.model_fields, key=DecodingOptions.model_fields.__contains__))


def form_schema() -> dict[str, dict[str, Any]]:
    """Makes the JSON Schema of each form field; null, also as a default, means that it is absent."""
    options, fields = CaptionOptions.model_json_schema()["properties"], {}
    for name in FORM_FIELDS:
        (values,) = [each for each in options[name].get("anyOf", [{}]) if each != {"type": "null"}]
        members = {**options[name], **values, "anyOf": None}
        fields[name] = {key: value for key, value in members.items() if value is not None}
    return fields
