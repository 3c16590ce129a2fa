"""Counts and pads regions: boxes of a picture, what they are called, and what is in them."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from extractors.extractor import UnknownExtractor
from extractors.windowing.window_rows import WindowRows


@dataclass(frozen=True, eq=False)
class Regions:
    """Holds the regions of one picture, the best first."""

    boxes: Tensor  #: (K, 4) in the picture's pixels
    scores: Tensor  #: (K,), of the regions' classes
    classes: Tensor  #: (K,), places among the detector's names
    features: Tensor  #: (K, C)
    attributes: Tensor | None = None  #: (K, A) their probabilities, or None where the detector knows none


def parse_count(name: str, usual: int) -> int:
    """Reads the boxes a frame from a name such as ``bottom_up:16``. Raises UnknownExtractor."""
    _, colon, number = name.partition(":")
    if not colon:
        return usual
    if not number.isdecimal() or not 1 <= int(number) <= 100:
        raise UnknownExtractor(f"{name!r} should end in a number of boxes from 1 to 100")
    return int(number)


def pad_regions(
    found: Sequence[Regions], size: tuple[int, int], count: int, things: int
) -> dict[str, WindowRows]:
    """Makes rows of streams of the regions of several pictures: the best of each, then zeros.

    Args:
        found: of each picture.
        size: height and width of the pictures, in pixels.
        count: regions a row.
        things: how many classes there are.

    Returns:
        float16 rows by the ending of their stream's name: "" features (T, count, C); "_scores"
        (T, count, things), a box's score in the column of its class; "_attributes" (T, count, A) where the
        detector says any.
    """
    kept = [keep_best(regions, count) for regions in found]
    height, width = size
    sides = found[0].boxes.new_tensor([width, height, width, height])
    boxes = torch.stack([pad_rows(regions.boxes / sides, count) for regions in kept]).float().clamp(0, 1)
    places = torch.arange(count, device=boxes.device)
    mask = torch.stack([places < len(regions.boxes) for regions in kept])
    values = {"": torch.stack([pad_rows(regions.features, count) for regions in kept])}
    values["_scores"] = torch.stack([pad_rows(spread_scores(regions, things), count) for regions in kept])
    attributes = [regions.attributes for regions in kept if regions.attributes is not None]
    if len(attributes) == len(kept):
        values["_attributes"] = torch.stack([pad_rows(row, count) for row in attributes])
    return {ending: WindowRows(value.half(), boxes, mask) for ending, value in values.items()}


def keep_best(regions: Regions, count: int) -> Regions:
    """Keeps the first ``count`` regions."""
    attributes = None if regions.attributes is None else regions.attributes[:count]
    best = (regions.boxes[:count], regions.scores[:count], regions.classes[:count], regions.features[:count])
    return Regions(*best, attributes)


def pad_rows(values: Tensor, count: int) -> Tensor:
    """Pads (K, …) to (count, …), zeros behind."""
    return torch.cat([values, values.new_zeros(count - len(values), *values.shape[1:])])


def spread_scores(regions: Regions, things: int) -> Tensor:
    """Spreads scores to (K, things), each in the column of its class."""
    columns = regions.scores.new_zeros(len(regions.scores), things)
    return columns.scatter_(1, regions.classes[:, None], regions.scores[:, None])
