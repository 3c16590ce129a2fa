"""Boxes one at a time, for tests that compare fast code with the plain rule."""

from __future__ import annotations


def overlap_of(a: list[float], b: list[float]) -> float:
    """Common area over joint area."""
    width, height = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    common = max(width, 0) * max(height, 0)
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (a, b)]
    return common / (sum(areas) - common)


def cut(box: list[float], height: float, width: float) -> list[float]:
    """To the picture."""
    return [min(max(edge, 0.0), most) for edge, most in zip(box, (width, height) * 2, strict=True)]


def is_solid(box: list[float]) -> bool:
    return box[2] > box[0] and box[3] > box[1]
