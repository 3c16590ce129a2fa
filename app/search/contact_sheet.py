"""Draws a page of the moments that were found: a picture of each, where and when it is, and its caption."""

from collections.abc import Sequence

from PIL import Image, ImageDraw, ImageFont

from app.attention_picture.drawing import (
    ACCENT,
    GAP,
    HEADLINE,
    INK,
    MARGIN,
    QUIET,
    SMALL,
    draw_paragraph,
    fit_text,
    format_seconds,
    make_block,
    stack_blocks,
    wrap_text,
)
from app.search.moments import Found

COLUMNS = 4
TILE = (300, 200)  #: pixels that a picture is fitted into
LINE = SMALL + 7
LINES = 2  #: of a caption; longer ones are cut
WIDTH = 2 * MARGIN + COLUMNS * TILE[0] + (COLUMNS - 1) * GAP


def contact_sheet(words: str, found: Sequence[Found]) -> Image.Image:
    """Draws tiles in rows, the best first, below the words that were looked for; fetches the pictures."""
    rows = [found[begin : begin + COLUMNS] for begin in range(0, len(found), COLUMNS)]
    headline = draw_paragraph(words, HEADLINE, INK, WIDTH)
    return stack_blocks([headline, *(_row(row, k * COLUMNS) for k, row in enumerate(rows))], WIDTH)


def _row(found: Sequence[Found], before: int) -> Image.Image:
    row = make_block(WIDTH, TILE[1] + (1 + LINES) * LINE + GAP)
    for place, each in enumerate(found):
        left = MARGIN + place * (TILE[0] + GAP)
        _draw_tile(row, left, before + place + 1, each)
    return row


def _draw_tile(row: Image.Image, left: int, number: int, found: Found) -> None:
    moment, pen = found.moment, ImageDraw.Draw(row)
    picture = moment.picture().convert("RGB")
    picture.thumbnail(TILE, Image.Resampling.LANCZOS)
    row.paste(picture, (left, TILE[1] - picture.height))
    font = ImageFont.load_default(SMALL)
    when = f"{number}  {format_seconds(moment.start)} to {format_seconds(moment.end)}"
    where, size = fit_text(moment.source, SMALL, TILE[0] - font.getlength(when) - GAP)
    pen.text((left, TILE[1] + 5), when, fill=ACCENT, font=font)
    right = left + TILE[0]
    pen.text((right, TILE[1] + 5), where, fill=QUIET, font=ImageFont.load_default(size), anchor="ra")
    lines = wrap_text(moment.caption, font, TILE[0])
    for line, text in enumerate(lines[:LINES]):
        pen.text((left, TILE[1] + 5 + (line + 1) * LINE), text, fill=INK, font=font)
