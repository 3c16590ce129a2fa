"""What is told beside a video: a form's texts and JSON's values become the same request, or a named error."""

from __future__ import annotations

import re
from typing import Any

import pytest

from app.api import refusals
from app.api.receiving.fields import METADATA_BYTES, REQUEST_FIELDS, fields_schema, read_request
from app.jobs.job import Submission
from app.jobs.options import CaptionOptions

TEXTS = {
    "captioner": "stats", "beam_size": "8", "attention": "false", "segments": "10", "prompt": " Who? ",
    "url": "https://example.org/a.mp4", "metadata": '{"order": 7}', "priority": "high",
    "webhook": "https://example.org/hook", "validate_only": "true",
}  # fmt: skip
VALUES = {
    "captioner": "stats", "beam_size": 8, "attention": False, "segments": 10, "prompt": "Who?",
    "url": "https://example.org/a.mp4", "metadata": {"order": 7}, "priority": "high", "members": None,
    "webhook": "https://example.org/hook", "validate_only": True,
}  # fmt: skip


def test_a_form_and_json_say_the_same() -> None:
    request = read_request(TEXTS)
    assert request == read_request(VALUES, is_json=True)
    assert request.priority == "high"
    assert request.options == CaptionOptions(
        captioner="stats", beam_size=8, attention=False, segments="10", prompt="Who?"
    )
    assert request.submission == Submission(
        metadata={"order": 7},
        source_url="https://example.org/a.mp4",
        webhook="https://example.org/hook",
        validate_only=True,
    )


def test_nothing_said_is_all_defaults() -> None:
    request = read_request({})
    assert (request.options, request.priority, request.submission) == (
        CaptionOptions(),
        "normal",
        Submission(),
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("metadata", "[1]"),
        ("metadata", "{"),
        ("metadata", "7"),
        ("metadata", '{"a": NaN}'),
        ("metadata", '{"a": 1e400}'),
        ("metadata", '{"a": "\\ud800"}'),
        ("metadata", '{"a": ' + "[" * 300 + "]" * 300 + "}"),
        ("metadata", '{"a": "' + "é" * (METADATA_BYTES // 2) + '"}'),
        ("priority", "urgent"),
        ("validate_only", "perhaps"),
        ("validate_only", "1"),
        ("webhook", "mailto:a@example.org"),
        ("webhook", "https://user:secret@example.org/"),
        ("url", "file:///etc/passwd"),
        ("url", "ftp://example.org/a.mp4"),
        ("url", "//example.org/a.mp4"),
        ("url", "http://user@example.org/a.mp4"),
        ("url", "http://example.org/a b.mp4"),
        ("url", "http://example.org:99999/"),
        ("url", "http:///a.mp4"),
        ("url", "http://example.org/" + "a" * 2048),
    ],
)
def test_a_wrong_field_is_named(name: str, value: str) -> None:
    with pytest.raises(refusals.InvalidOption, match=f"^{name} is "):
        read_request({name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("beam_size", "8"),
        ("attention", "true"),
        ("metadata", "{}"),
        ("metadata", []),
        ("url", 7),
        ("captioner", ["stats"]),
        ("validate_only", 1),
        ("validate_only", "maybe"),
        ("members", [[]]),
    ],
)
def test_json_has_types(name: str, value: Any) -> None:
    with pytest.raises(refusals.InvalidOption, match=f"^{name} is "):
        read_request({name: value}, is_json=True)


def test_a_field_that_is_not_known_is_named() -> None:
    with pytest.raises(refusals.UnknownField, match="beams") as refused:
        read_request({"beams": "3"})
    assert refused.value.known == list(REQUEST_FIELDS)


def test_each_field_has_its_schema() -> None:
    assert set(fields_schema()) == set(fields_schema(is_json=True)) == set(REQUEST_FIELDS)
    assert fields_schema()["priority"]["enum"] == ["high", "normal", "low"]
    assert re.match(fields_schema()["url"]["pattern"], "HTTPS://example.org")
    assert fields_schema(is_json=True)["members"]["anyOf"][1]["type"] == "array"
