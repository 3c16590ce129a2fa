"""Draws the picture of evidence, or of attention: the frames that were used in the order of time, what
explains the caption as a whole (explanation_panels.py), and a tile for each word (word_tiles.py).

Pillow only (the API draws too, and has neither numpy nor torch). Sizes are pixels.
"""

import math
from collections.abc import Sequence

from PIL import Image, ImageDraw, ImageFont

from app.attention_picture import drawing, heatmap, word_tiles
from app.attention_picture.drawing import GAP, HEADLINE, INK, MARGIN, QUIET, SMALL
from app.attention_picture.explanation_panels import draw_explanation_panels
from models.caption import AttentionDocument, BoxAttention, GridAttention, join_words

CONTENT = 1440  #: widest line of tiles
TILE_AREA, TILE_WIDEST, TILE_TALLEST, TILE_NARROWEST = 36_000, 300, 300, 132
STRIP_HEIGHT, STRIP_COLUMNS = 104, 16


def draw_attention_picture(
    attention: AttentionDocument, frames: Sequence[Image.Image], frame_times: Sequence[float]
) -> Image.Image:
    """Draws the whole picture, RGB. Raises ValueError: there are not as many times as frames, or none.

    Args:
        frames: those that the captioner saw, in order, all of one size.
        frame_times: their seconds.
    """
    if len(frames) != len(frame_times) or not frames:
        raise ValueError(f"{len(frames)} frames cannot have {len(frame_times)} times")
    attention = attention.shown
    seen, tiles = (
        word_tiles.PictureSource(attention, frames, frame_times),
        _lay_out_tiles(attention, frames[0].size),
    )
    width = tiles.width
    blocks = [
        drawing.draw_paragraph(join_words(attention.words), HEADLINE, INK, width),
        _draw_strip(frames, frame_times, width),
        *draw_explanation_panels(seen, width),
        *word_tiles.draw_word_rows(seen, tiles),
        *([_draw_scale(width)] if _has_heat(attention) else []),
        drawing.draw_paragraph(_explain(attention), SMALL, QUIET, width),
    ]
    return drawing.stack_blocks(blocks, width)


def _lay_out_tiles(attention: AttentionDocument, size: tuple[int, int]) -> word_tiles.TileLayout:
    words = attention.drawn_words
    tile = _fit_tile(size)
    cell = max(tile[0], TILE_NARROWEST)
    most = max(1, (CONTENT + GAP) // (cell + GAP))
    columns = math.ceil(max(len(words), 1) / math.ceil(max(len(words), 1) / most))
    # Few words still get a page wide enough for the headline and the legend.
    content = max(columns * (cell + GAP) - GAP, 900)
    frames = max((len(word_tiles.list_tile_moments(attention, word)) for word in words), default=1)
    has_bars = word_tiles.find_bars(attention) is not None
    lines = max(
        (
            len(word_tiles.write_below(attention, word, moment, 0.0))
            for word in words
            for moment in word_tiles.list_tile_moments(attention, word)
        ),
        default=1,
    )
    return word_tiles.TileLayout(content + 2 * MARGIN, tile, cell, columns, max(1, frames), has_bars, lines)


def _fit_tile(size: tuple[int, int]) -> tuple[int, int]:
    """Finds the size of a tile of the frame's shape: tall and wide ones get the same area, within bounds."""
    width, height = size
    scale = math.sqrt(TILE_AREA / (width * height))
    scale = min(scale, TILE_WIDEST / width, TILE_TALLEST / height)
    return max(1, round(width * scale)), max(1, round(height * scale))


def _draw_strip(frames: Sequence[Image.Image], times: Sequence[float], page: int) -> Image.Image:
    rows = math.ceil(len(frames) / STRIP_COLUMNS)
    columns, content = math.ceil(len(frames) / rows), page - 2 * MARGIN
    room = (content - 8 * (columns - 1)) / columns
    scale = min(STRIP_HEIGHT / frames[0].height, room / frames[0].width)
    width, height = (max(1, int(side * scale)) for side in frames[0].size)
    # near together, spread no wider than half a frame of air
    pitch = width + 8 if columns == 1 else min(width * 1.6, (content - width) / (columns - 1))
    labels = [drawing.format_seconds(time) for time in times]
    widest = max(map(ImageFont.load_default(SMALL).getlength, labels))
    labelled = max(1, math.ceil((widest + 8) / pitch))  # every how many frames there is room for a time
    canvas = drawing.make_block(page, rows * (height + SMALL + 18))
    pen = ImageDraw.Draw(canvas)
    for k, frame in enumerate(frames):
        row, column = divmod(k, columns)
        x, y = round(MARGIN + column * pitch), row * (height + SMALL + 18)
        canvas.paste(frame.convert("RGB").resize((width, height), Image.Resampling.LANCZOS), (x, y))
        if column % labelled == 0:
            drawing.draw_centred(pen, (x + width / 2, y + height + 6), labels[k], SMALL, QUIET)
    return canvas


def _draw_scale(width: int) -> Image.Image:
    font, left = ImageFont.load_default(SMALL), "even share"
    canvas = drawing.make_block(width, SMALL + 7)
    pen = ImageDraw.Draw(canvas)
    start = MARGIN + round(font.getlength(left)) + 10
    pen.text((MARGIN, 0), left, fill=QUIET, font=font)
    canvas.paste(heatmap.draw_scale(220, 14), (start, 4))
    right = f"the word's strongest place, at least {heatmap.LEAST_RANGE:g} times even"
    pen.text((start + 230, 0), right, fill=QUIET, font=font)
    return canvas


def _has_heat(attention: AttentionDocument) -> bool:
    return any(
        word_tiles.find_heat(attention, word, moment) is not None
        for word in attention.drawn_words
        for moment in word_tiles.list_tile_moments(attention, word)
    )


def _explain(attention: AttentionDocument) -> str:
    places = {GridAttention: "; heat shows where in it", BoxAttention: "; lit boxes show which objects in it"}
    spatial = attention.spatial if _has_heat(attention) else None
    where = "" if spatial is None else places[type(spatial)]
    many = any(attention.list_chosen(word) for word in range(len(attention.words)))
    which = "the frame of the moment that it needs most"
    if attention.evidence is None:
        which = "the frames chosen for it" if many else "the frame with its largest temporal weight"
    sentences = [
        "Top: frames spread over the clip, which networks of pictures saw. Below, for each word, "
        f"{which}{where}. The line under a frame is the clip from its first to its last second, with a "
        "segment for the part that each moment stands for, darker for more weight, orange for the one shown."
    ]
    if any(attention.spread or []):
        sentences.append(
            f"“{word_tiles.SPREAD.capitalize()}”: its weights are nearly even, so that no moment stands out."
        )
    if attention.evidence is not None:
        sentences.append(
            "Weights are by how likely the word is where the clip is that moment, or that place, alone: what "
            "the word needs, not where the captioner looked."
        )
    return " ".join([*sentences, *(f"{part.title}: {part.note}" for part in attention.extras if part.note)])
