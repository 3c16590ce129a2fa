"""Attention weights over a picture, as colour: a grid's weights enlarged smoothly, or boxes.

Weights are shown against an even share (1/N of N cells): what gets no more than that stays dim and
what gets most of its word's attention glows, so that a map which looks nowhere looks like nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from PIL import Image, ImageDraw

Colour = tuple[int, int, int]

# Nine even steps through matplotlib's "inferno" (CC0): lightness rises evenly, also for the colour-blind.
INFERNO: tuple[Colour, ...] = (
    (0, 0, 4), (31, 12, 72), (85, 15, 109), (136, 34, 106), (186, 54, 85),
    (227, 89, 51), (249, 140, 10), (249, 201, 50), (252, 255, 164),
)  # fmt: skip

LEAST_RANGE = 2.0  #: full colour means at least this many even shares
DIM, GLOW = 0.24, 0.64  #: opacity of the colour over the picture, at the even share and at the top


def colour(strength: float) -> Colour:
    """The colour of a strength in [0, 1]."""
    place = min(max(strength, 0.0), 1.0) * (len(INFERNO) - 1)
    low = min(int(place), len(INFERNO) - 2)
    part = place - low
    first, second = INFERNO[low], INFERNO[low + 1]
    red, green, blue = (round(a + (b - a) * part) for a, b in zip(first, second, strict=True))
    return red, green, blue


def strengths(weights: Sequence[float]) -> list[float]:
    """N weights that sum to one → N strengths: 0 for an even share or less, 1 for the strongest.

    The strongest is taken to be at least LEAST_RANGE even shares, lest noise around an even map glow.
    """
    if len(weights) == 1:
        return [0.0]
    even = 1 / len(weights)
    top = max(*weights, min(1.0, LEAST_RANGE * even))
    return [max(0.0, (weight - even) / (top - even)) for weight in weights]


def over_grid(picture: Image.Image, weights: Sequence[float], rows: int, columns: int) -> Image.Image:
    """The picture with the weights of its rows × columns cells, row by row, enlarged bilinearly, over it."""
    cells = Image.new("L", (columns, rows))
    cells.putdata([round(255 * strength) for strength in strengths(weights)])
    return _over(picture, cells.resize(picture.size, Image.Resampling.BILINEAR))


def over_view(
    picture: Image.Image,
    weights: Sequence[float],
    rows: int,
    columns: int,
    view: tuple[float, float, float, float],
) -> Image.Image:
    """The same of a grid that covers a part of the picture, x0 y0 x1 y1 in [0, 1]; the rest stays bare."""
    if view == (0.0, 0.0, 1.0, 1.0):
        return over_grid(picture, weights, rows, columns)
    width, height = picture.size
    left, top = min(int(view[0] * width), width - 1), min(int(view[1] * height), height - 1)
    box = (left, top, max(left + 1, round(view[2] * width)), max(top + 1, round(view[3] * height)))
    lit = picture.copy()
    lit.paste(over_grid(picture.crop(box), weights, rows, columns), box)
    return lit


def over_boxes(
    picture: Image.Image, weights: Sequence[float], boxes: Sequence[Sequence[float]]
) -> Image.Image:
    """The picture with boxes (x0 y0 x1 y1 in [0, 1]) lit by weight and the three strongest outlined."""
    glow = Image.new("L", picture.size)
    pen = ImageDraw.Draw(glow)
    ranked = sorted(zip(strengths(weights), boxes, strict=True), key=lambda pair: pair[0])
    corners = [(strength, _corners(box, picture.size)) for strength, box in ranked]
    for strength, place in corners:
        pen.rectangle(place, fill=round(255 * strength))
    lit = _over(picture, glow)
    outline = ImageDraw.Draw(lit)
    for strength, place in corners[-3:]:
        outline.rectangle(place, outline=colour(0.35 + 0.65 * strength), width=2)
    return lit


def bar(width: int, height: int) -> Image.Image:
    """The scale from the even share (left) to the strongest (right)."""
    strip = Image.new("RGB", (width, 1))
    strip.putdata([colour(x / max(1, width - 1)) for x in range(width)])
    return strip.resize((width, height))


def _over(picture: Image.Image, strength: Image.Image) -> Image.Image:
    table = [colour(level / 255) for level in range(256)]
    paint = Image.merge("RGB", [strength.point([shade[k] for shade in table]) for k in range(3)])
    opacity = strength.point([round(255 * (DIM + (GLOW - DIM) * level / 255)) for level in range(256)])
    return Image.composite(paint, picture.convert("RGB"), opacity)


def _corners(box: Sequence[float], size: tuple[int, int]) -> tuple[float, float, float, float]:
    """Pixel corners inside the picture, x0 ≤ x1 and y0 ≤ y1 whatever the detector said."""
    width, height = size[0] - 1, size[1] - 1
    x0, x1 = sorted(min(max(box[k], 0.0), 1.0) * width for k in (0, 2))
    y0, y1 = sorted(min(max(box[k], 0.0), 1.0) * height for k in (1, 3))
    return x0, y0, x1, y1
