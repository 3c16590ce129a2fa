"""Draws above the words what explains a caption as a whole, each part by its kind."""

from collections.abc import Sequence

from PIL import Image, ImageDraw, ImageFont

from app.attention_picture import drawing
from app.attention_picture.drawing import ACCENT, GAP, INK, MARGIN, QUIET, SMALL
from app.attention_picture.word_tiles import PictureSource
from models.caption import (
    AttentionDocument,
    ChosenMoment,
    MomentsExplanation,
    TableExplanation,
    TableRow,
    TextExplanation,
    WeightsExplanation,
)

MOST_ROWS = 12
MOST_MOMENTS = 4
TALLEST = 260  #: of a chosen moment's frame
BAR = 150  #: widest bar of a table's row


def draw_explanation_panels(seen: PictureSource, width: int) -> list[Image.Image]:
    """Draws the parts; none for a captioner that has everything in its words' tiles."""
    blocks = []
    for part in seen.attention.extras:
        if isinstance(part, TableExplanation) and part.caption:
            blocks.append(_draw_table(part, part.caption, width))
        elif isinstance(part, MomentsExplanation) and part.caption:
            blocks.append(_draw_moments(seen, keep_heaviest(part.caption), width))
        elif isinstance(part, WeightsExplanation) and part.caption and part.over == "moments":
            blocks.append(_draw_weights(seen.attention, part.caption, width))
        elif isinstance(part, TextExplanation) and part.caption:
            blocks.append(drawing.draw_paragraph(part.caption, SMALL, INK, width))
    return blocks


def _draw_table(table: TableExplanation, all_rows: Sequence[TableRow], width: int) -> Image.Image:
    """Draws a line for each row, with a bar for its measure, the first one's in ACCENT."""
    rows = all_rows[:MOST_ROWS]
    measures = [_measure(table, row) for row in rows]
    low = min(measures)
    span = max(measures) - low or 1.0
    font = ImageFont.load_default(SMALL)
    line = SMALL + 12
    canvas = drawing.make_block(width, len(rows) * line)
    pen = ImageDraw.Draw(canvas)
    for number, row in enumerate(rows):
        y, ink = number * line, ACCENT if number == 0 else QUIET
        length = 20 + (BAR - 20) * (measures[number] - low) / span
        pen.rectangle((MARGIN, y + 4, MARGIN + length, y + SMALL), fill=ink)
        text = f"{measures[number]:.2f}  {_write_row(table, row)}"
        text, size = drawing.fit_text(text, SMALL, width - 2 * MARGIN - BAR - 20)
        fitted = font if size == SMALL else ImageFont.load_default(size)
        pen.text((MARGIN + BAR + 20, y), text, fill=INK if number == 0 else QUIET, font=fitted)
    return canvas


def _measure(table: TableExplanation, row: TableRow) -> float:
    """Reads what a row is ranked by; 0 in a table without such a column."""
    values = [row.get(column.name) for column in table.columns if column.role == "measure"]
    return next((float(value) for value in values if isinstance(value, (int, float))), 0.0)


def _write_row(table: TableExplanation, row: TableRow) -> str:
    """Writes a row's sentence, and in brackets what is shown beside it."""
    text = " ".join(str(row.get(column.name, "")) for column in table.columns if column.role == "text")
    asides = [
        str(value) if isinstance(value, str) else f"{column.title} {value}"
        for column in table.columns
        if column.role == "aside" and (value := row.get(column.name)) is not None
    ]
    return f"{text}  ({', '.join(asides)})" if asides else text


def keep_heaviest(moments: Sequence[ChosenMoment]) -> list[ChosenMoment]:
    """Keeps as many as fit a line, in their order."""
    ranks = sorted(range(len(moments)), key=lambda place: -(moments[place].weight or 0.0))
    return [moments[place] for place in sorted(ranks[:MOST_MOMENTS])]


def _draw_moments(seen: PictureSource, chosen: Sequence[ChosenMoment], width: int) -> Image.Image:
    """Draws the frames side by side with what was written from each, and the mean map over the last."""
    count = len(chosen) + 1
    column = (width - 2 * MARGIN - (count - 1) * GAP) // count
    frame = seen.frames[0]
    scale = min(column / frame.width, TALLEST / frame.height)
    size = max(1, int(frame.width * scale)), max(1, int(frame.height * scale))
    captions = [write_moment(each) for each in chosen]
    drawn = [seen.draw_moment(each.moment, None, size, each.box) for each in chosen]
    times = [write_time(each, time) for each, (_, time) in zip(chosen, drawn, strict=True)]
    mean = _average_maps(seen.attention, chosen[-1].moment)
    if mean is not None:
        captions.append("Its words' places, their mean")
        drawn.append(seen.draw_moment(chosen[-1].moment, mean, size))
        times.append(drawing.format_seconds(drawn[-1][1]))
    parts = [
        _draw_frame(picture, time, caption, column)
        for (picture, _), time, caption in zip(drawn, times, captions, strict=True)
    ]
    canvas = drawing.make_block(width, max(part.height for part in parts))
    for number, part in enumerate(parts):
        canvas.paste(part, (MARGIN + number * (column + GAP), 0))
    return canvas


def write_moment(moment: ChosenMoment) -> str:
    """Writes what a moment was chosen as, what was read in it, and how much it weighs."""
    words = ": ".join(text for text in (moment.title, moment.text) if text)
    return words if moment.weight is None else f"{words}  {moment.weight:.0%}"


def write_time(moment: ChosenMoment, frame_time: float) -> str:
    """Writes from when to when a moment lasts, or of one without an end the time of its frame, in seconds."""
    times = (frame_time,) if moment.end is None else (moment.time, moment.end)
    return " to ".join(map(drawing.format_seconds, times))


def _draw_weights(attention: AttentionDocument, weights: Sequence[float], width: int) -> Image.Image:
    """Draws a line over the clip, the heaviest moment in ACCENT."""
    canvas = drawing.make_block(width, 16)
    heaviest = max(range(len(weights)), key=weights.__getitem__)
    parts = attention.clip_parts()
    drawing.draw_timeline(ImageDraw.Draw(canvas), (MARGIN, 0), width - 2 * MARGIN, weights, parts, heaviest)
    return canvas


def _draw_frame(picture: Image.Image, time: str, text: str, column: int) -> Image.Image:
    """Draws one frame with its time and a sentence below it."""
    font = ImageFont.load_default(SMALL)
    lines = [time, *drawing.wrap_text(text, font, column)]
    canvas = drawing.make_block(column, picture.height + 8 + len(lines) * (SMALL + 6))
    canvas.paste(picture, (0, 0))
    pen = ImageDraw.Draw(canvas)
    for number, line in enumerate(lines):
        place = (0, picture.height + 8 + number * (SMALL + 6))
        pen.text(place, line, fill=QUIET if number == 0 else INK, font=font)
    return canvas


def _average_maps(attention: AttentionDocument, moment: int) -> list[float] | None:
    """Takes the mean over words of their maps of a moment; None without any."""
    spatial = attention.spatial
    rows = [] if spatial is None else [rows[moment] for rows in spatial.weights if rows is not None]
    maps = [cells for cells in rows if cells is not None]
    return [sum(cell) / len(maps) for cell in zip(*maps, strict=True)] if maps else None
