"""The blocks that a captioner's paper adds above the words: refocus's two steps, fusion's candidates."""

from __future__ import annotations

from collections.abc import Sequence

from PIL import Image, ImageDraw, ImageFont

from app import sheet
from app.attention_document import AttentionDocument, ChosenMoment
from app.render_words import frame_of, over
from app.sheet import ACCENT, GAP, INK, MARGIN, QUIET, SMALL

MOST_CANDIDATES = 12
TALLEST = 260  #: of refocus's frames


def own_blocks(
    attention: AttentionDocument, frames: Sequence[Image.Image], times: Sequence[float], width: int
) -> list[Image.Image]:
    """None for a captioner that has everything in its words' tiles."""
    blocks = []
    if attention.extras.candidates:
        blocks.append(_candidates(attention, width))
    if attention.extras.key_frame is not None and attention.extras.default_key_frame is not None:
        blocks.append(_refocused(attention, frames, times, width))
    return blocks


def _candidates(attention: AttentionDocument, width: int) -> Image.Image:
    """A line for each that competed, with a bar for its relevance, the winner's in ACCENT."""
    candidates = (attention.extras.candidates or [])[:MOST_CANDIDATES]
    low = min(each.relevance for each in candidates)
    span = max(each.relevance for each in candidates) - low or 1.0
    font = ImageFont.load_default(SMALL)
    line = SMALL + 12
    found = sheet.block(width, len(candidates) * line)
    pen = ImageDraw.Draw(found)
    for number, each in enumerate(candidates):
        y, ink = number * line, ACCENT if number == 0 else QUIET
        length = 20 + 130 * (each.relevance - low) / span
        pen.rectangle((MARGIN, y + 4, MARGIN + length, y + SMALL), fill=ink)
        said = f"{each.relevance:.2f}  {each.text}  ({each.captioner}, {_place(each.beam)})"
        text, size = sheet.fitted(said, SMALL, width - 2 * MARGIN - 170)
        pen.text((MARGIN + 170, y), text, fill=INK if number == 0 else QUIET, font=_sized(font, size))
    return found


def _sized(font: sheet.Font, size: float) -> sheet.Font:
    return font if size == SMALL else ImageFont.load_default(size)


def _place(beam: int) -> str:
    return "best of its own" if beam == 0 else f"its number {beam + 1}"


def _refocused(
    attention: AttentionDocument, frames: Sequence[Image.Image], times: Sequence[float], width: int
) -> Image.Image:
    """Figures 3 and 4: default and predicted key frame with their captions, and the mask over the latter."""
    extras = attention.extras
    assert extras.key_frame is not None
    assert extras.default_key_frame is not None
    size = _third(frames[0].size, width)
    column = (width - 2 * MARGIN - 2 * GAP) // 3
    parts = [
        _step(attention, frames, times, extras.default_key_frame, size, column, None,
              f"Step 1, from the middle: {extras.step_1 or ''}"),
        _step(attention, frames, times, extras.key_frame, size, column, None,
              f"Step 2, from the key frame: {extras.step_2 or ''}"),
        _step(attention, frames, times, extras.key_frame, size, column, _mean_map(attention),
              "Where its words looked, their mean"),
    ]  # fmt: skip
    found = sheet.block(width, max(part.height for part in parts) + 24)
    for number, part in enumerate(parts):
        found.paste(part, (MARGIN + number * (column + GAP), 0))
    if extras.refocus:
        below = found.height - 16
        sheet.moments(ImageDraw.Draw(found), (MARGIN, below), width - 2 * MARGIN, extras.refocus)
    return found


def _step(
    attention: AttentionDocument,
    frames: Sequence[Image.Image],
    times: Sequence[float],
    chosen: ChosenMoment,
    size: tuple[int, int],
    column: int,
    weights: Sequence[float] | None,
    said: str,
) -> Image.Image:
    """One frame with its time and a sentence below it."""
    frame = frame_of(attention, chosen.moment, times)
    picture = over(attention, weights, chosen.moment, frames[frame], size)
    font = ImageFont.load_default(SMALL)
    lines = [sheet.seconds(times[frame]), *sheet.wrap(said, font, column)]
    found = sheet.block(column, size[1] + 8 + len(lines) * (SMALL + 6))
    found.paste(picture, (0, 0))
    pen = ImageDraw.Draw(found)
    for number, line in enumerate(lines):
        ink = QUIET if number == 0 else INK
        pen.text((0, size[1] + 8 + number * (SMALL + 6)), line, fill=ink, font=font)
    return found


def _third(size: tuple[int, int], width: int) -> tuple[int, int]:
    """A frame that fits a third of the page."""
    scale = min((width - 2 * MARGIN - 2 * GAP) / 3 / size[0], TALLEST / size[1])
    return max(1, int(size[0] * scale)), max(1, int(size[1] * scale))


def _mean_map(attention: AttentionDocument) -> list[float] | None:
    """The mean over words of their maps of the key frame; None without any."""
    chosen, spatial = attention.extras.key_frame, attention.spatial
    if chosen is None or spatial is None:
        return None
    maps = [rows[chosen.moment] for rows in spatial.weights if rows is not None]
    return [sum(cell) / len(maps) for cell in zip(*maps, strict=True)] if maps else None
