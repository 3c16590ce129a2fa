"""Options mean the same for every door into the service."""

from __future__ import annotations

import json
import re

import pytest
from pydantic import ValidationError

from app.jobs.options import FORM_FIELDS, CaptionOptions, form_schema
from models.decoding.options import DecodingOptions

#: Options that a record has only where they are not their defaults.
RARE = {name: field.default for name, field in CaptionOptions.model_fields.items() if field.exclude_if}


def test_defaults_are_those_of_the_contract() -> None:
    options = CaptionOptions()
    assert options.model_dump() == {
        "captioner": None,
        "members": None,
        "beam_size": 5,
        "num_captions": 1,
        "max_length": 20,
        "attention": True,
        "segments": None,
        "prompt": None,
        "length_penalty": 0.7,
    }
    assert set(FORM_FIELDS) == set(CaptionOptions.model_fields)


def test_rare_options_stand_in_a_record_only_where_they_are_set() -> None:
    """What was written before they were there reads the same, and so do films that were begun then."""
    assert not RARE.keys() & CaptionOptions().model_dump().keys()
    options = CaptionOptions(method="sample", top_p=0.9, seed=3, name_once=False, category=4)
    record = options.model_dump(mode="json")
    assert {name: record[name] for name in RARE if name in record} == {
        "method": "sample",
        "top_p": 0.9,
        "seed": 3,
        "name_once": False,
        "category": 4,
    }
    assert CaptionOptions.model_validate_json(options.model_dump_json()) == options


def test_every_option_of_decoding_can_be_asked_for() -> None:
    defaults = {name: field.default for name, field in DecodingOptions.model_fields.items()}
    assert {name: CaptionOptions.model_fields[name].default for name in defaults} == defaults
    assert set(defaults) < set(FORM_FIELDS)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"top_k": 5}, "top_k is for drawn words: add method sample"),
        ({"seed": 5, "method": "greedy"}, "seed is for drawn words"),
        ({"method": "greedy", "num_captions": 2}, "num_captions .2. is 1 with the method greedy"),
        ({"group_size": 2}, "group_size .2. must divide beam_size .5."),
        ({"group_size": 5, "method": "sample"}, "group_size is for beams"),
        ({"fusion_rule": "relevance"}, "fusion_rule goes with the captioner fusion"),
    ],
)
def test_options_of_the_search_that_do_not_go_together_are_refused(
    given: dict[str, object], sentence: str
) -> None:
    with pytest.raises(ValidationError, match=sentence):
        CaptionOptions.model_validate(given)
    assert CaptionOptions(method="sample", num_captions=20).num_captions == 20
    assert CaptionOptions(captioner="fusion", fusion_rule="relevance").fusion_rule == "relevance"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("captioner", ""),
        ("captioner", "x" * 65),
        ("members", ""),
        ("members", "g2l,,stats"),
        ("members", "g2l,stats,g2l"),
        ("members", []),
        ("beam_size", 0),
        ("beam_size", 21),
        ("beam_size", "five"),
        ("num_captions", 0),
        ("num_captions", 6),  # more than the beam of five ends with
        ("max_length", 0),
        ("max_length", 51),
        ("attention", "maybe"),
        ("prompt", " \n"),
        ("prompt", "x" * 501),
        ("segments", "scenes"),
        ("segments", ""),
        ("segments", "0.4"),
        ("segments", "90000"),
        ("segments", "-3"),
        ("segments", float("nan")),
        ("length_penalty", -0.1),
        ("length_penalty", float("nan")),
        ("beams", 3),
        ("temperature", 0),
        ("top_p", 0),
        ("method", "best"),
        ("category", -1),
    ],
)
def test_values_out_of_bounds_are_refused(field: str, value: object) -> None:
    with pytest.raises(ValidationError, match=field):
        CaptionOptions.model_validate({field: value})


def test_form_texts_are_understood() -> None:
    options = CaptionOptions.model_validate({"beam_size": "3", "num_captions": "3", "attention": "false"})
    assert (options.beam_size, options.num_captions, options.attention) == (3, 3, False)


@pytest.mark.parametrize(
    ("given", "kept"), [("shots", "shots"), (" none ", "none"), ("10", "10"), ("2.50", "2.5"), (10, "10")]
)
def test_segments_are_a_word_or_seconds(given: object, kept: str) -> None:
    options = CaptionOptions.model_validate({"segments": given})
    assert options.segments == kept
    assert CaptionOptions.model_validate_json(options.model_dump_json(exclude_none=True)) == options


def test_options_survive_a_job_record() -> None:
    options = CaptionOptions(beam_size=2, attention=False)
    assert CaptionOptions.model_validate_json(options.model_dump_json()) == options


@pytest.mark.parametrize(
    ("field", "value", "is_right"),
    [
        ("captioner", "", False),
        ("captioner", "g2l", True),
        ("captioner", "x" * 64, True),
        ("captioner", "x" * 65, False),
        ("members", "", False),
        ("members", "  ", False),
        ("members", ",", False),
        ("members", "g2l,,stats", False),
        ("members", "g2l, ,stats", False),
        ("members", "g2l,", False),
        ("members", "g2l", True),
        ("members", " g2l , stats ", True),
        ("prompt", " ", False),
        ("prompt", "Who is it?", True),
        ("prompt", "x" * 500, True),
        ("prompt", "x" * 501, False),
    ],
)
def test_names_are_what_their_schema_says(field: str, value: str, is_right: bool) -> None:
    fields = {field: value} | ({"captioner": "fusion"} if field == "members" else {})
    schema = form_schema()[field]
    fits = schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value))
    assert (fits and re.search(schema.get("pattern", ""), value) is not None) is is_right
    if is_right:
        CaptionOptions.model_validate(fields)
    else:
        with pytest.raises(ValidationError):
            CaptionOptions.model_validate(fields)


def test_no_field_has_a_default_that_a_form_cannot_send() -> None:
    defaults = {name: schema["default"] for name, schema in form_schema().items() if "default" in schema}
    assert defaults == {
        "beam_size": 5,
        "num_captions": 1,
        "max_length": 20,
        "attention": True,
        "length_penalty": 0.7,
        **{name: default for name, default in RARE.items() if default is not None},
    }
    assert not [name for name, schema in form_schema().items() if "null" in json.dumps(schema)]


def test_a_captioner_of_segments_writes_alone() -> None:
    options = CaptionOptions(captioner="fusion", members="g2l,stats", segment_captioner="refocus")
    assert options.of_segments == CaptionOptions(captioner="refocus")
    assert CaptionOptions().of_segments == CaptionOptions()
    assert "segment_captioner" not in CaptionOptions().model_dump()
