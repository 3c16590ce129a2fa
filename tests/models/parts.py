"""Finds what explains a caption."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TypeVar

from models.caption import AttentionDocument, Explanation, ExplanationPart, TableExplanation

PartT = TypeVar("PartT", bound=Explanation)


def find_any(attention: AttentionDocument, name: str) -> ExplanationPart | None:
    return next((part for part in attention.extras if part.name == name), None)


def find_part(attention: AttentionDocument | None, name: str, kind: type[PartT]) -> PartT:
    """The part of that name, which is of that kind."""
    assert attention is not None
    part = find_any(attention, name)
    assert isinstance(part, kind)
    return part


def list_names(attention: AttentionDocument) -> set[str]:
    return {part.name for part in attention.extras}


def list_candidates(attention: AttentionDocument | None) -> list[SimpleNamespace]:
    """What competed in a fusion, the best first."""
    table = find_part(attention, "candidates", TableExplanation)
    assert table.caption is not None
    assert all(row.keys() == {column.name for column in table.columns} for row in table.caption)
    return [SimpleNamespace(**row) for row in table.caption]
