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


def test_the_tree_is_drawn_in_the_docstring() -> None:
    assert errors.__doc__ is not None
    for leaf in LEAVES:
        line = next(line for line in errors.__doc__.splitlines() if f" {leaf.__name__} " in line)
        assert line.split(leaf.__name__)[1].split()[:2] == [leaf.code, str(leaf.status)]
    assert len({leaf.code for leaf in LEAVES}) == len(LEAVES)
