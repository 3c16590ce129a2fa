"""Options are checked in one place, by name, and each is in the manual with its default."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from models.decoding.constraints import BAD_ENDINGS
from models.decoding.length_penalty import LengthPenalty
from models.decoding.options import DecodingOptions, first_fault


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
    ("seed", {"method": "sample", "seed": 1.5}),
    ("seed", {"seed": 1}),
    ("group_size", {"beam_size": 5, "group_size": 2}),
    ("group_size", {"method": "sample", "group_size": 5}),
    ("diversity_lambda", {"diversity_lambda": -0.1}),
]


@pytest.mark.parametrize(("name", "changes"), REFUSED)
def test_options_that_cannot_be_are_refused_by_name(name: str, changes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as refusal:
        DecodingOptions(**changes)
    field, sentence = first_fault(refusal.value)
    assert field == name or (field == "" and sentence.startswith(name))
    with pytest.raises(ValidationError):
        DecodingOptions().changed(**changes)


def test_options_need_no_torch() -> None:
    """The API's image carries them, and the command line makes its options of them."""
    code = "import sys, models.decoding.options; print({'torch', 'numpy', 'extractors'} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.stdout == "set()\n", run.stderr


def test_each_option_is_in_the_manual_with_its_default(root: Path) -> None:
    page = (root / "docs" / "models.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", page, re.MULTILINE))
    assert rows == {name: repr(field.default) for name, field in DecodingOptions.model_fields.items()}
    assert ", ".join(BAD_ENDINGS) in " ".join(page.split())
