"""Every error has a code of its own, a hint and a row in the manual."""

from __future__ import annotations

import re
from pathlib import Path

from extractors.errors import leaves
from models.pretrained.errors import PretrainedError
from training.sessions.pretrained import AlreadyAdapted


def test_codes_are_in_the_manual_and_no_others(root: Path) -> None:
    found = list(leaves(PretrainedError))
    page = (root / "docs/pretrained.md").read_text().partition("## Errors")[2]
    codes = [*(error.code for error in found), AlreadyAdapted.code]
    assert re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE) == codes
    assert all(error.hint.endswith(".") for error in found)
