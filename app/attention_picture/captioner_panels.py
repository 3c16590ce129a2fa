"""Draws what a captioner's paper adds above the words: refocus's two steps, fusion's candidates."""

from __future__ import annotations

from collections.abc import Sequence

from PIL import Image, ImageDraw, ImageFont

from app.attention_picture import drawing
from app.attention_picture.drawing import ACCENT, GAP, INK, MARGIN, QUIET, SMALL
from app.attention_picture.word_tiles import PictureSource
from models.caption import AttentionDocument, CandidateCaption, ChosenMoment

MOST_CANDIDATES = 12
TALLEST = 260  #: of refocus's frames


def draw_captioner_panels(seen: PictureSource, width: int) -> list[Image.Image]:
    """Draws them; none for a captioner that has everything in its words' tiles."""
    extras, blocks = seen.attention.extras, []
    if extras.candidates:
        blocks.append(_draw_candidates(extras.candidates, width))
    if extras.key_frame is not None and extras.default_key_frame is not None:
        blocks.append(_draw_refocusing(seen, extras.default_key_frame, extras.key_frame, width))
    return blocks


def _draw_candidates(competed: Sequence[CandidateCaption], width: int) -> Image.Image:
    """Draws a line for each that competed, with a bar for its merit, the winner's in ACCENT."""
    candidates = competed[:MOST_CANDIDATES]
    low = min(each.merit for each in candidates)
    span = max(each.merit for each in candidates) - low or 1.0
    font = ImageFont.load_default(SMALL)
    line = SMALL + 12
    found = drawing.make_block(width, len(candidates) * line)
    pen = ImageDraw.Draw(found)
    for number, each in enumerate(candidates):
        y, ink = number * line, ACCENT if number == 0 else QUIET
        length = 20 + 130 * (each.merit - low) / span
        pen.rectangle((MARGIN, y + 4, MARGIN + length, y + SMALL), fill=ink)
        said = f"{each.merit:.2f}  {each.text}  ({each.captioner}, {_name_place(each.beam)})"
        text, size = drawing.fit_text(said, SMALL, width - 2 * MARGIN - 170)
        pen.text((MARGIN + 170, y), text, fill=INK if number == 0 else QUIET, font=_resize_font(font, size))
    return found


def _resize_font(font: drawing.Font, size: float) -> drawing.Font:
    return font if size == SMALL else ImageFont.load_default(size)


def _name_place(beam: int) -> str:
    return "best of its own" if beam == 0 else f"its number {beam + 1}"


def _draw_refocusing(
    seen: PictureSource, default: ChosenMoment, key: ChosenMoment, width: int
) -> Image.Image:
    """Draws figures 3 and 4: default and predicted key frame, their captions, the mask over the latter."""
    extras = seen.attention.extras
    size, column = _fit_third(seen.frames[0].size, width), (width - 2 * MARGIN - 2 * GAP) // 3
    columns = [
        (seen.draw_moment(default.moment, None, size), f"Step 1, from the middle: {extras.step_1 or ''}"),
        (seen.draw_moment(key.moment, None, size), f"Step 2, from the key frame: {extras.step_2 or ''}"),
        (
            seen.draw_moment(key.moment, _average_maps(seen.attention), size),
            "Where its words looked, their mean",
        ),
    ]
    parts = [_draw_step(picture, time, said, column) for (picture, time), said in columns]
    found = drawing.make_block(width, max(part.height for part in parts) + 24)
    for number, part in enumerate(parts):
        found.paste(part, (MARGIN + number * (column + GAP), 0))
    if extras.refocus:
        corner = (MARGIN, found.height - 16)
        pen, of_clip = ImageDraw.Draw(found), seen.attention.clip_parts()
        drawing.draw_timeline(pen, corner, width - 2 * MARGIN, extras.refocus, of_clip, key.moment)
    return found


def _draw_step(picture: Image.Image, time: float, said: str, column: int) -> Image.Image:
    """Draws one frame with its time and a sentence below it."""
    font = ImageFont.load_default(SMALL)
    lines = [drawing.format_seconds(time), *drawing.wrap_text(said, font, column)]
    found = drawing.make_block(column, picture.height + 8 + len(lines) * (SMALL + 6))
    found.paste(picture, (0, 0))
    pen = ImageDraw.Draw(found)
    for number, line in enumerate(lines):
        place = (0, picture.height + 8 + number * (SMALL + 6))
        pen.text(place, line, fill=QUIET if number == 0 else INK, font=font)
    return found


def _fit_third(size: tuple[int, int], width: int) -> tuple[int, int]:
    """Finds the size of a frame that fits a third of the page."""
    scale = min((width - 2 * MARGIN - 2 * GAP) / 3 / size[0], TALLEST / size[1])
    return max(1, int(size[0] * scale)), max(1, int(size[1] * scale))


def _average_maps(attention: AttentionDocument) -> list[float] | None:
    """Takes the mean over words of their maps of the key frame; None without any."""
    chosen, spatial = attention.extras.key_frame, attention.spatial
    if chosen is None or spatial is None:
        return None
    maps = [rows[chosen.moment] for rows in spatial.weights if rows is not None]
    return [sum(cell) / len(maps) for cell in zip(*maps, strict=True)] if maps else None
