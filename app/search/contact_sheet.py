"""Draws a page of the moments that were found: a picture of each, where and when it is, and its caption."""

from collections.abc import Sequence

from PIL import Image, ImageDraw, ImageFont

from app.attention_picture import drawing
from app.search.moments import Found

COLUMNS = 4
TILE = (300, 200)  #: pixels that a picture is fitted into
LINE = drawing.SMALL + 7
LINES = 2  #: of a caption; longer ones are cut
WIDTH = 2 * drawing.MARGIN + COLUMNS * TILE[0] + (COLUMNS - 1) * drawing.GAP


def contact_sheet(words: str, found: Sequence[Found]) -> Image.Image:
    """Draws tiles in rows, the best first, below the words that were looked for; fetches the pictures."""
    rows = [found[begin : begin + COLUMNS] for begin in range(0, len(found), COLUMNS)]
    headline = drawing.draw_paragraph(words, drawing.HEADLINE, drawing.INK, WIDTH)
    return drawing.stack_blocks([headline, *(_row(row, k * COLUMNS) for k, row in enumerate(rows))], WIDTH)


def _row(found: Sequence[Found], before: int) -> Image.Image:
    row = drawing.make_block(WIDTH, TILE[1] + (1 + LINES) * LINE + drawing.GAP)
    for place, each in enumerate(found):
        left = drawing.MARGIN + place * (TILE[0] + drawing.GAP)
        _draw_tile(row, left, before + place + 1, each)
    return row


def _draw_tile(row: Image.Image, left: int, number: int, found: Found) -> None:
    moment, pen = found.moment, ImageDraw.Draw(row)
    picture = moment.picture().convert("RGB")
    picture.thumbnail(TILE, Image.Resampling.LANCZOS)
    row.paste(picture, (left, TILE[1] - picture.height))
    font = ImageFont.load_default(drawing.SMALL)
    when = f"{number}  {drawing.format_seconds(moment.start)} to {drawing.format_seconds(moment.end)}"
    where, size = drawing.fit_text(moment.source, drawing.SMALL, TILE[0] - font.getlength(when) - drawing.GAP)
    pen.text((left, TILE[1] + 5), when, fill=drawing.ACCENT, font=font)
    right = left + TILE[0]
    pen.text((right, TILE[1] + 5), where, fill=drawing.QUIET, font=ImageFont.load_default(size), anchor="ra")
    lines = drawing.wrap_text(moment.caption, font, TILE[0])
    for line, text in enumerate(lines[:LINES]):
        pen.text((left, TILE[1] + 5 + (line + 1) * LINE), text, fill=drawing.INK, font=font)
