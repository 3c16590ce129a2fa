"""Draws attention weights over a picture as colour: a grid's weights enlarged smoothly, or boxes.

Weights are shown against an even share (1/N of N cells): what gets no more than that stays dim and
what gets most of its word's attention glows, so that a map which looks nowhere looks like nothing.
"""

from collections.abc import Sequence
from itertools import pairwise

from PIL import Image, ImageDraw

from app.attention_picture.drawing import Ink, mix

# Nine even steps through matplotlib's "inferno" (CC0): lightness rises evenly, also for the colour-blind.
INFERNO: tuple[Ink, ...] = (
    (0, 0, 4), (31, 12, 72), (85, 15, 109), (136, 34, 106), (186, 54, 85),
    (227, 89, 51), (249, 140, 10), (249, 201, 50), (252, 255, 164),
)  # fmt: skip

LEAST_RANGE = 2.0  #: full colour means at least this many even shares
DIM, GLOW = 0.24, 0.64  #: opacity of the colour over the picture, at the even share and at the top


def pick_colour(strength: float) -> Ink:
    """Picks the colour of a strength in [0, 1]."""
    place = min(max(strength, 0.0), 1.0) * (len(INFERNO) - 1)
    low = min(int(place), len(INFERNO) - 2)
    return mix(INFERNO[low], INFERNO[low + 1], place - low)


def scale_weights(weights: Sequence[float]) -> list[float]:
    """Turns N weights that sum to one into N strengths: 0 for an even share or less, 1 for the strongest.

    The strongest is taken to be at least LEAST_RANGE even shares, lest noise around an even map glow.
    """
    if len(weights) == 1:
        return [0.0]
    even = 1 / len(weights)
    top = max(*weights, min(1.0, LEAST_RANGE * even))
    return [max(0.0, (weight - even) / (top - even)) for weight in weights]


def overlay_cells(
    picture: Image.Image, weights: Sequence[float], row_edges: Sequence[float], column_edges: Sequence[float]
) -> Image.Image:
    """Lays the weights of cells, even or not, over a new RGB picture; outside the edges it stays bare.

    Args:
        picture: any size.
        weights: of the cells, row by row; they sum to one.
        row_edges: where rows begin and end, rising, in [0, 1] of the height; one more than there are rows.
        column_edges: the same of columns and the width.
    """
    (left, right), (top, bottom) = (
        _find_reach(edges, pixels)
        for edges, pixels in zip((column_edges, row_edges), picture.size, strict=True)
    )
    grey = Image.new("L", (len(column_edges) - 1, len(row_edges) - 1))
    grey.putdata([round(255 * strength) for strength in scale_weights(weights)])
    mesh = [
        ((x0, y0, x1, y1), (west, north, west, south, east, south, east, north))
        for y0, y1, north, south in _find_stretches(row_edges, bottom - top)
        for x0, x1, west, east in _find_stretches(column_edges, right - left)
    ]
    size, box = (right - left, bottom - top), (left, top, right, bottom)
    strength = grey.transform(size, Image.Transform.MESH, mesh, Image.Resampling.BILINEAR)
    heated = picture.convert("RGB")
    heated.paste(_overlay(heated.crop(box), strength), box)
    return heated


def _find_reach(edges: Sequence[float], pixels: int) -> tuple[int, int]:
    """Finds the first and one past the last pixel between the outer edges, one at least."""
    first = min(int(edges[0] * pixels), pixels - 1)
    return first, max(first + 1, round(edges[-1] * pixels))


def _find_stretches(edges: Sequence[float], pixels: int) -> list[tuple[int, int, float, float]]:
    """Finds from which to which pixel, and at which places of a map of a pixel a cell, to read evenly.

    That is from the middle of each cell to the next one's, and up to the outer edges as in the middle.
    """
    count, span = len(edges) - 1, edges[-1] - edges[0]
    bounds = [edges[0], *((begin + end) / 2 for begin, end in pairwise(edges)), edges[-1]]
    places = [0.5, *(cell + 0.5 for cell in range(count)), count - 0.5]
    shown = [round((bound - edges[0]) / span * pixels) for bound in bounds]
    pairs = zip(pairwise(shown), pairwise(places), strict=True)
    return [(first, last, low, high) for (first, last), (low, high) in pairs if last > first]


def overlay_boxes(
    picture: Image.Image, weights: Sequence[float], boxes: Sequence[Sequence[float]]
) -> Image.Image:
    """Lights boxes over a new RGB picture by their weight, and outlines the three strongest.

    Args:
        picture: any size.
        weights: of the boxes; they sum to one.
        boxes: of each x0, y0, x1, y1 in [0, 1].
    """
    glow = Image.new("L", picture.size)
    pen = ImageDraw.Draw(glow)
    ranked = sorted(zip(scale_weights(weights), boxes, strict=True), key=lambda pair: pair[0])
    corners = [(strength, _clip_corners(box, picture.size)) for strength, box in ranked]
    for strength, place in corners:
        pen.rectangle(place, fill=round(255 * strength))
    heated = _overlay(picture, glow)
    outline = ImageDraw.Draw(heated)
    for strength, place in corners[-3:]:
        outline.rectangle(place, outline=pick_colour(0.35 + 0.65 * strength), width=2)
    return heated


def draw_scale(width: int, height: int) -> Image.Image:
    """Draws the scale from the even share (left) to the strongest (right)."""
    strip = Image.new("RGB", (width, 1))
    strip.putdata([pick_colour(x / max(1, width - 1)) for x in range(width)])
    return strip.resize((width, height))


def _overlay(picture: Image.Image, strength: Image.Image) -> Image.Image:
    table = [pick_colour(level / 255) for level in range(256)]
    paint = Image.merge("RGB", [strength.point([shade[k] for shade in table]) for k in range(3)])
    opacity = strength.point([round(255 * (DIM + (GLOW - DIM) * level / 255)) for level in range(256)])
    return Image.composite(paint, picture.convert("RGB"), opacity)


def _clip_corners(box: Sequence[float], size: tuple[int, int]) -> tuple[float, float, float, float]:
    """Returns pixel corners inside the picture, x0 ≤ x1 and y0 ≤ y1 whatever the detector found."""
    width, height = size[0] - 1, size[1] - 1
    x0, x1 = sorted(min(max(box[k], 0.0), 1.0) * width for k in (0, 2))
    y0, y1 = sorted(min(max(box[k], 0.0), 1.0) * height for k in (1, 3))
    return x0, y0, x1, y1
