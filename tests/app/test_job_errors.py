"""The page of job errors: each leaf has what it takes to be told about."""

from __future__ import annotations

import pytest

from app import errors
from extractors.errors import leaves

LEAVES = list(leaves(errors.JobError))


@pytest.mark.parametrize("leaf", LEAVES)
def test_each_leaf_is_complete(leaf: type[errors.JobError]) -> None:
    own = vars(leaf)
    assert own["code"].islower()
    assert own["hint"].endswith(".")
    assert 400 <= leaf.status < 600
    assert leaf("It happened.").document() == {
        "code": leaf.code,
        "message": "It happened.",
        "hint": leaf.hint,
    }
