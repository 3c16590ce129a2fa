"""Reads what an image processor of transformers does to pictures."""

from collections.abc import Mapping
from typing import Any

from extractors.features import Filter
from extractors.preprocessing.images import ResizeAndCrop

#: Pillow's numbers of filters.
FILTERS: Mapping[int, Filter] = {2: "bilinear", 3: "bicubic"}


def resize_and_crop(processor: Any) -> ResizeAndCrop:
    """Reads what an image processor does to a picture before it is cut into patches.

    Raises ValueError where it leaves the size as it is, or crops what is no square.
    """
    size = _sides(processor.size)
    if not getattr(processor, "do_resize", True) or not size:
        raise ValueError("the image processor does not resize pictures to one size")
    target: int | tuple[int, int] = size.get("shortest_edge", 0) or (size["height"], size["width"])
    kernel = FILTERS.get(int(getattr(processor, "resample", None) or 2), "bilinear")
    if not getattr(processor, "do_center_crop", False):
        return ResizeAndCrop(target, None, kernel)
    crop = _sides(processor.crop_size)
    if crop.get("height") != crop.get("width"):
        raise ValueError(f"the image processor crops {crop}, which is no square")
    return ResizeAndCrop(target, crop["height"], kernel)


def _sides(size: Any) -> Mapping[str, int]:
    """Returns the sides of a ``SizeDict`` or mapping, without what is None."""
    return {name: int(value) for name, value in dict(size or {}).items() if value}
