"""The attention picture, after STaTS figures 6 to 9: the sampled frames in the order of time, and below
them one tile for each word: the frame that it looked at most, with the heat of where in it.

Pillow only (the API draws too, and has neither numpy nor torch). Sizes are pixels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image, ImageDraw, ImageFont

from app import heat
from app.documents import AttentionDocument, BoxAttention, GridAttention

PAPER, INK, QUIET, FAINT = (255, 255, 255), (24, 26, 31), (104, 110, 122), (226, 229, 235)
ACCENT = (204, 84, 22)
MARGIN, GAP = 48, 20
CONTENT = 1440  #: widest line of tiles
TILE_AREA, TILE_WIDEST, TILE_TALLEST, TILE_NARROWEST = 36_000, 300, 300, 132
STRIP_HEIGHT, STRIP_COLUMNS = 104, 16
HEADLINE, WORD, SMALL = 38, 25, 17

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


@dataclass(frozen=True)
class Layout:
    """Where everything goes. ``tile`` and ``thumb`` are (width, height) of pictures in their cells."""

    width: int
    tile: tuple[int, int]
    cell_width: int
    columns: int
    thumb: tuple[int, int]
    thumb_columns: int


def attention_picture(
    attention: AttentionDocument, frames: Sequence[Image.Image], frame_times: Sequence[float]
) -> Image.Image:
    """Draws the picture, RGB.

    frames: the frames that the captioner saw, in order, all of one size; frame_times: their seconds.
    """
    if len(frames) != len(frame_times) or not frames:
        raise ValueError(f"{len(frames)} frames cannot have {len(frame_times)} times")
    layout = _lay_out(len(attention.words), len(frames), frames[0].size)
    blocks = [
        _headline(" ".join(attention.words), layout),
        _strip(frames, frame_times, layout),
        *_word_rows(attention, frames, frame_times, layout),
        _legend(attention, layout),
    ]
    return _stack(blocks, layout.width)


def looked_at(
    attention: AttentionDocument, word: int, frame_times: Sequence[float]
) -> tuple[int, int] | None:
    """(moment, frame) that a word looked at most: the heaviest moment and the frame nearest its middle.

    None for a word that had no attention. Of equal moments the first counts, as numpy's argmax has it.
    """
    weights = attention.temporal[word]
    if not weights:
        return None
    moment = max(range(len(weights)), key=weights.__getitem__)
    start, end = attention.times[moment]
    inside = [k for k, time in enumerate(frame_times) if start <= time < end or time == start]
    candidates = inside or range(len(frame_times))
    middle = (start + end) / 2
    return moment, min(candidates, key=lambda k: abs(frame_times[k] - middle))


def _lay_out(words: int, frames: int, size: tuple[int, int]) -> Layout:
    tile = _fit(size)
    cell = max(tile[0], TILE_NARROWEST)
    most = max(1, (CONTENT + GAP) // (cell + GAP))
    rows = math.ceil(max(words, 1) / most)
    columns = math.ceil(max(words, 1) / rows)
    strip_rows = math.ceil(frames / STRIP_COLUMNS)
    thumb_columns = math.ceil(frames / strip_rows)
    # Few words still get a page wide enough for the headline and the legend.
    content = max(columns * (cell + GAP) - GAP, 900)
    return Layout(
        width=content + 2 * MARGIN,
        tile=tile,
        cell_width=cell,
        columns=columns,
        thumb=_thumb(size, content, thumb_columns),
        thumb_columns=thumb_columns,
    )


def _fit(size: tuple[int, int]) -> tuple[int, int]:
    """A tile of the frame's shape: tall and wide ones get the same area, within bounds."""
    width, height = size
    scale = math.sqrt(TILE_AREA / (width * height))
    scale = min(scale, TILE_WIDEST / width, TILE_TALLEST / height)
    return max(1, round(width * scale)), max(1, round(height * scale))


def _thumb(size: tuple[int, int], content: int, columns: int) -> tuple[int, int]:
    width, height = size
    room = (content - 8 * (columns - 1)) / columns
    scale = min(STRIP_HEIGHT / height, room / width)
    return max(1, int(width * scale)), max(1, int(height * scale))


def _headline(text: str, layout: Layout) -> Image.Image:
    font = ImageFont.load_default(HEADLINE)
    lines = _wrap(text, font, layout.width - 2 * MARGIN)
    block = _block(layout, len(lines) * (HEADLINE + 12))
    pen = ImageDraw.Draw(block)
    for number, line in enumerate(lines):
        pen.text((MARGIN, number * (HEADLINE + 12)), line, fill=INK, font=font)
    return block


def _strip(frames: Sequence[Image.Image], times: Sequence[float], layout: Layout) -> Image.Image:
    width, height = layout.thumb
    rows = math.ceil(len(frames) / layout.thumb_columns)
    block = _block(layout, rows * (height + SMALL + 18))
    pen = ImageDraw.Draw(block)
    pitch = _pitch(layout.width - 2 * MARGIN, width, layout.thumb_columns)
    labelled = _label_every(times, pitch)
    for k, frame in enumerate(frames):
        row, column = divmod(k, layout.thumb_columns)
        x, y = round(MARGIN + column * pitch), row * (height + SMALL + 18)
        block.paste(frame.convert("RGB").resize(layout.thumb, Image.Resampling.LANCZOS), (x, y))
        if column % labelled == 0:
            _centred(pen, (x + width / 2, y + height + 6), _seconds(times[k]), SMALL, QUIET)
    return block


def _pitch(content: int, width: int, columns: int) -> float:
    """Distance from frame to frame: near together, spread no wider than half a frame of air."""
    return width + 8 if columns == 1 else min(width * 1.6, (content - width) / (columns - 1))


def _label_every(times: Sequence[float], pitch: float) -> int:
    """Every how many frames there is room for a time."""
    font = ImageFont.load_default(SMALL)
    widest = max(font.getlength(_seconds(time)) for time in times)
    return max(1, math.ceil((widest + 8) / pitch))


def _word_rows(
    attention: AttentionDocument, frames: Sequence[Image.Image], times: Sequence[float], layout: Layout
) -> list[Image.Image]:
    numbers = range(len(attention.words))
    rows = [numbers[start : start + layout.columns] for start in range(0, len(numbers), layout.columns)]
    return [_word_row(row, attention, frames, times, layout) for row in rows]


def _word_row(
    row: range,
    attention: AttentionDocument,
    frames: Sequence[Image.Image],
    times: Sequence[float],
    layout: Layout,
) -> Image.Image:
    block = _block(layout, WORD + 16 + layout.tile[1] + 44)
    pen = ImageDraw.Draw(block)
    for column, word in enumerate(row):
        left = MARGIN + column * (layout.cell_width + GAP)
        centre = left + layout.cell_width / 2
        _centred(pen, (centre, 0), *_fitted(attention.words[word], WORD, layout.cell_width + GAP - 6), INK)
        corner = (round(centre - layout.tile[0] / 2), WORD + 14)
        seen = looked_at(attention, word, times)
        if seen is None:
            _no_attention(pen, corner, layout.tile)
            continue
        block.paste(_lit(attention, word, seen[0], frames[seen[1]], layout.tile), corner)
        below = corner[1] + layout.tile[1]
        _moments(pen, (left, below + 7), layout.cell_width, attention.temporal[word] or [])
        _centred(pen, (centre, below + 18), _seconds(times[seen[1]]), SMALL, QUIET)
    return block


def _lit(
    attention: AttentionDocument, word: int, moment: int, frame: Image.Image, size: tuple[int, int]
) -> Image.Image:
    """The frame with the word's heat over it; the bare frame where the captioner attends to time alone."""
    picture = frame.convert("RGB").resize(size, Image.Resampling.LANCZOS)
    spatial = attention.spatial
    rows = None if spatial is None else spatial.weights[word]
    if spatial is None or rows is None:
        return picture
    if isinstance(spatial, GridAttention):
        return heat.over_grid(picture, rows[moment], spatial.rows, spatial.columns)
    return heat.over_boxes(picture, rows[moment], spatial.boxes[moment])


def _moments(
    pen: ImageDraw.ImageDraw, corner: tuple[float, float], width: int, weights: Sequence[float]
) -> None:
    """A thin line of T segments in the order of time, darker where the word's temporal weight is larger."""
    heaviest = max(range(len(weights)), key=weights.__getitem__)
    top = weights[heaviest] or 1.0
    step = width / len(weights)
    for k, weight in enumerate(weights):
        x = corner[0] + k * step
        ink = ACCENT if k == heaviest else _mix(FAINT, QUIET, weight / top)
        pen.rectangle((x, corner[1], x + max(1.0, step - 2), corner[1] + 5), fill=ink)


def _no_attention(pen: ImageDraw.ImageDraw, corner: tuple[int, int], size: tuple[int, int]) -> None:
    x, y = corner
    pen.rectangle((x, y, x + size[0] - 1, y + size[1] - 1), fill=FAINT)
    _centred(pen, (x + size[0] / 2, y + size[1] / 2 - SMALL / 2), "no attention", SMALL, QUIET)


def _legend(attention: AttentionDocument, layout: Layout) -> Image.Image:
    font = ImageFont.load_default(SMALL)
    lines = _wrap(_explanation(attention), font, layout.width - 2 * MARGIN)
    block = _block(layout, 34 + len(lines) * (SMALL + 7))
    pen = ImageDraw.Draw(block)
    top = 0
    if attention.spatial is not None:
        _scale(block, pen, font)
        top = 34
    for number, line in enumerate(lines):
        pen.text((MARGIN, top + number * (SMALL + 7)), line, fill=QUIET, font=font)
    return block


def _scale(block: Image.Image, pen: ImageDraw.ImageDraw, font: Font) -> None:
    left = "even share"
    start = MARGIN + round(font.getlength(left)) + 10
    pen.text((MARGIN, 0), left, fill=QUIET, font=font)
    block.paste(heat.bar(220, 14), (start, 4))
    right = f"the word's strongest place, at least {heat.LEAST_RANGE:g} times even"
    pen.text((start + 230, 0), right, fill=QUIET, font=font)


def _explanation(attention: AttentionDocument) -> str:
    places = {
        GridAttention: "heat shows where in that frame. ",
        BoxAttention: "lit boxes show which objects in that frame. ",
    }
    where = "" if attention.spatial is None else places[type(attention.spatial)]
    return (
        "Top: the frames that the captioner saw. Below, for each word, the frame with its largest temporal "
        f"weight; {where}The line under a frame has one segment for each moment, darker for more weight, "
        "orange for the largest."
    )


def _stack(blocks: Sequence[Image.Image], width: int) -> Image.Image:
    height = sum(block.height for block in blocks) + GAP * (len(blocks) - 1) + 2 * MARGIN
    page = Image.new("RGB", (width, height), PAPER)
    y = MARGIN
    for block in blocks:
        page.paste(block, (0, y))
        y += block.height + GAP
    return page


def _block(layout: Layout, height: int) -> Image.Image:
    return Image.new("RGB", (layout.width, max(1, height)), PAPER)


def _centred(
    pen: ImageDraw.ImageDraw, top: tuple[float, float], text: str, size: float, ink: tuple[int, int, int]
) -> None:
    pen.text(top, text, fill=ink, font=ImageFont.load_default(size), anchor="ma")


def _fitted(text: str, size: int, width: float) -> tuple[str, float]:
    """The text and the size at which it fits ``width``; cut short where the size would be too small."""
    length = ImageFont.load_default(size).getlength(text)
    smallest = size * 0.6
    if length * smallest / size <= width:
        return text, size if length <= width else math.floor(size * width / length)
    font = ImageFont.load_default(smallest)
    while len(text) > 1 and font.getlength(text + "…") > width:
        text = text[:-1]
    return text + "…", smallest


def _wrap(text: str, font: Font, width: float) -> list[str]:
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if font.getlength(longer) <= width or not lines[-1]:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def _seconds(time: float) -> str:
    """1.4 s, 2:05.0 or 1:02:05."""
    tenths = round(time, 1)
    if tenths < 60:
        return f"{tenths:.1f} s"
    minutes, seconds = divmod(tenths, 60)
    if minutes < 60:
        return f"{int(minutes)}:{seconds:04.1f}"
    return f"{int(minutes) // 60}:{int(minutes) % 60:02d}:{int(seconds):02d}"


def _mix(first: tuple[int, int, int], second: tuple[int, int, int], part: float) -> tuple[int, int, int]:
    red, green, blue = (round(a + (b - a) * part) for a, b in zip(first, second, strict=True))
    return red, green, blue
