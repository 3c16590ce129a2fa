"""Draws blocks, text and timelines on white pages.

Pillow only (the API draws too, and has neither numpy nor torch). Sizes are pixels.
"""

import math
from collections.abc import Sequence

from PIL import Image, ImageDraw, ImageFont

Ink = tuple[int, int, int]
Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

PAPER, INK, QUIET, FAINT = (255, 255, 255), (24, 26, 31), (104, 110, 122), (226, 229, 235)
ACCENT = (204, 84, 22)
MARGIN, GAP = 48, 20
HEADLINE, WORD, SMALL = 38, 25, 17


def stack_blocks(blocks: Sequence[Image.Image], width: int) -> Image.Image:
    """Lays blocks of the page's width below each other, with margins."""
    height = sum(each.height for each in blocks) + GAP * (len(blocks) - 1) + 2 * MARGIN
    page = Image.new("RGB", (width, height), PAPER)
    y = MARGIN
    for each in blocks:
        page.paste(each, (0, y))
        y += each.height + GAP
    return page


def make_block(width: int, height: int) -> Image.Image:
    """Makes an empty block."""
    return Image.new("RGB", (width, max(1, height)), PAPER)


def draw_paragraph(text: str, size: int, ink: Ink, width: int) -> Image.Image:
    """Draws text between the margins of a page.

    Args:
        text: what is written, in as many lines as it takes.
        width: of the page.
    """
    font = ImageFont.load_default(size)
    lines = wrap_text(text, font, width - 2 * MARGIN)
    pitch = size + (12 if size == HEADLINE else 7)
    block = make_block(width, len(lines) * pitch)
    pen = ImageDraw.Draw(block)
    for number, line in enumerate(lines):
        pen.text((MARGIN, number * pitch), line, fill=ink, font=font)
    return block


def draw_centred(
    pen: ImageDraw.ImageDraw, top: tuple[float, float], text: str, size: float, ink: Ink
) -> None:
    """Draws a line of text around a point.

    Args:
        top: the middle of the line's upper edge, (x, y).
    """
    pen.text(top, text, fill=ink, font=ImageFont.load_default(size), anchor="ma")


def fit_text(text: str, size: int, width: float) -> tuple[str, float]:
    """Makes a line of text smaller, then shorter, until it fits; returns it and the font's size.

    Args:
        size: of the font that is wanted.
        width: of the room.
    """
    length = ImageFont.load_default(size).getlength(text)
    smallest = size * 0.6
    if length * smallest / size <= width:
        return text, size if length <= width else math.floor(size * width / length)
    font = ImageFont.load_default(smallest)
    while len(text) > 1 and font.getlength(text + "…") > width:
        text = text[:-1]
    return text + "…", smallest


def wrap_text(text: str, font: Font, width: float) -> list[str]:
    """Breaks text into lines between words.

    Args:
        font: in which it is written.
        width: of the longest line; a longer word has a line of its own.
    """
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if font.getlength(longer) <= width or not lines[-1]:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def format_seconds(time: float) -> str:
    """Writes a time as 1.4 s, 2:05.0 or 1:02:05."""
    tenths = round(time, 1)
    if tenths < 60:
        return f"{tenths:.1f} s"
    minutes, rest = divmod(tenths, 60)
    if minutes < 60:
        return f"{int(minutes)}:{rest:04.1f}"
    return f"{int(minutes) // 60}:{int(minutes) % 60:02d}:{int(rest):02d}"


def mix(first: Ink, second: Ink, part: float) -> Ink:
    """Mixes two colours.

    Args:
        first: the one at 0.
        second: the one at 1.
        part: in [0, 1].
    """
    red, green, blue = (round(a + (b - a) * part) for a, b in zip(first, second, strict=True))
    return red, green, blue


def draw_timeline(
    pen: ImageDraw.ImageDraw,
    corner: tuple[float, float],
    width: float,
    weights: Sequence[float],
    parts: Sequence[Sequence[float]],
    shown: int | None,
) -> None:
    """Draws a thin line over the clip's time, a segment for each part, darker for more weight.

    Args:
        corner: the line's left upper corner, (x, y).
        weights: of each part, none below 0.
        parts: start and end of each in seconds; one that overlaps the next is drawn up to that one's start.
        shown: the one in ACCENT, None for none.
    """
    top, span = max(weights) or 1.0, max(end for _, end in parts) or 1.0
    starts = [start for start, _ in parts]
    ends = [min(end, later) for (_, end), later in zip(parts, [*starts[1:], span], strict=True)]
    for k, (start, end) in enumerate(zip(starts, ends, strict=True)):
        x, step = corner[0] + width * start / span, width * (end - start) / span
        ink = ACCENT if k == shown else mix(FAINT, QUIET, weights[k] / top)
        pen.rectangle((x, corner[1], x + max(1.0, step - 2), corner[1] + 5), fill=ink)
