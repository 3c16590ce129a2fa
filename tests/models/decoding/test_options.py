"""Options are checked in one place, by name, and each is in the manual with its default."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from models.decoding.constraints import BAD_ENDINGS
from models.decoding.decode import DecodingOptions, LengthPenalty


def test_length_penalties() -> None:
    n = torch.tensor([1.0, 4.0, 9.0])
    assert LengthPenalty.parse(0.5).divisor(n).tolist() == [1.0, 2.0, 3.0]
    assert LengthPenalty.parse("avg_0.3").divisor(n).tolist() == [1.0, 4.0, 9.0]
    assert LengthPenalty.parse("wu_2").divisor(n).tolist() == pytest.approx([1.0, 2.25, (14 / 6) ** 2])


REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("method", {"method": "viterbi"}),
    ("beam_size", {"beam_size": 0}),
    ("beam_size", {"beam_size": 2.5}),
    ("beam_size", {"beam_size": True}),
    ("num_captions", {"num_captions": 6}),
    ("num_captions", {"method": "greedy", "num_captions": 2}),
    ("max_length", {"max_length": 0}),
    ("length_penalty", {"length_penalty": "long"}),
    ("length_penalty", {"length_penalty": "wu_"}),
    ("length_penalty", {"length_penalty": -1.0}),
    ("length_penalty", {"length_penalty": float("nan")}),
    ("length_penalty", {"length_penalty": True}),
    ("temperature", {"temperature": 0.0}),
    ("temperature", {"temperature": float("inf")}),
    ("top_k", {"method": "sample", "top_k": 0}),
    ("top_k", {"top_k": 5}),
    ("top_p", {"method": "sample", "top_p": 0.0}),
    ("top_p", {"method": "sample", "top_p": 1.5}),
    ("top_p", {"method": "greedy", "top_p": 0.9}),
    ("seed", {"seed": 1.5}),
    ("group_size", {"beam_size": 5, "group_size": 2}),
    ("group_size", {"method": "sample", "group_size": 5}),
    ("diversity_lambda", {"diversity_lambda": -0.1}),
]


@pytest.mark.parametrize(("name", "changes"), REFUSED)
def test_options_that_cannot_be_are_refused_by_name(name: str, changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"^{name} must be .*; it is "):
        DecodingOptions(**changes)


def test_each_option_is_in_the_manual_with_its_default(root: Path) -> None:
    page = (root / "docs" / "models.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", page, re.MULTILINE))
    assert rows == {field.name: repr(field.default) for field in dataclasses.fields(DecodingOptions)}
    assert ", ".join(BAD_ENDINGS) in " ".join(page.split())
