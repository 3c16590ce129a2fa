"""Who writes together by default, and what is refused of those who are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from models.checkpoint import Card, save_checkpoint
from models.combining.members import (
    CaptionerFile,
    WrongMembers,
    check_members,
    choose_members,
    describe_files,
)
from tests.models.tiny import SPEC, tiny_stats, tiny_vanilla

STATS, G2L, OTHER = (
    CaptionerFile("stats", "stats", "w"),
    CaptionerFile("g2l", "g2l", "w"),
    CaptionerFile("other", "stats", "v"),
)
BASELINE = CaptionerFile("baseline", "vanilla", "w")


@pytest.mark.parametrize(
    ("kind", "given", "expected"),
    [
        ("fusion", [BASELINE, G2L, OTHER, STATS], [G2L, OTHER, STATS]),
        ("fusion", [BASELINE], [BASELINE]),
        ("fusion", [], []),
        ("ensemble", [BASELINE, G2L, OTHER, STATS], [G2L, STATS]),
        ("ensemble", [BASELINE, OTHER, STATS], []),
        ("ensemble", [STATS], []),
        ("ensemble", [], []),
    ],
)
def test_members_by_default(kind: str, given: list[CaptionerFile], expected: list[CaptionerFile]) -> None:
    assert choose_members(kind, given) == expected


def test_a_captioner_is_what_its_file_says_whatever_it_is_called(tmp_path: Path) -> None:
    for name, captioner in (("baseline", tiny_vanilla()), ("stats", tiny_stats()), ("mine", tiny_stats())):
        card = Card(captioner.name, {"grid": SPEC}, {}, {})
        save_checkpoint(tmp_path / f"{name}.safetensors", captioner, card)
    found = describe_files(tmp_path)
    assert [(each.name, each.kind) for each in found] == [
        ("baseline", "vanilla"),
        ("mine", "stats"),
        ("stats", "stats"),
    ]
    assert [each.name for each in choose_members("ensemble", found)] == ["mine", "stats"]


def test_names_lose_the_space_around_them() -> None:
    assert check_members(["g2l", " stats "]) == ("g2l", "stats")


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        (["g2l", "stats", "g2l"], "name g2l more than once"),
        (["g2l", " g2l"], "name g2l more than once"),
        (["g2l", ""], "none is empty"),
        ([" "], "none is empty"),
        ([], "none is empty"),
    ],
)
def test_doubled_and_empty_names_are_refused(names: list[str], sentence: str) -> None:
    with pytest.raises(WrongMembers, match=sentence):
        check_members(names)
