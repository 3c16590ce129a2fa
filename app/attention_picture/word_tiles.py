"""One tile for each word, after STaTS figures 6 to 9: the frame that it looked at most, heat where in it.

What a captioner has of its own is in the tile: G2L's key frames below each other, dualAFR's layers as bars
above the frame (its figure 3), the shares of STaTS's branches below it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image, ImageDraw

from app.attention_picture import drawing, heatmap
from app.attention_picture.drawing import ACCENT, FAINT, GAP, INK, MARGIN, QUIET, SMALL, WORD
from models.caption import AttentionDocument, GridAttention

BARS, NAMES = 46, 18  #: heights of dualAFR's bars and of the layers' names below them
BELOW, LINE = 44, 21  #: room below a frame, for the line of moments and the time; and for one more line
SPREAD = "spread over the whole clip"


@dataclass(frozen=True, eq=False)
class PictureSource:
    """What is drawn: the attention, and the frames, all of one size, with their seconds."""

    attention: AttentionDocument
    frames: Sequence[Image.Image]
    times: Sequence[float]

    def frame_with_heat(
        self, moment: int, weights: Sequence[float] | None, size: tuple[int, int]
    ) -> tuple[Image.Image, float]:
        """A moment's frame with weights of its cells or boxes over it, and its seconds."""
        frame = frame_of(self.attention, moment, self.times)
        picture = self.frames[frame].convert("RGB").resize(size, Image.Resampling.LANCZOS)
        return over(self.attention, weights, moment, picture), self.times[frame]


@dataclass(frozen=True)
class Tiles:
    """How words are laid out. ``tile``: (width, height) of a frame in its cell. frames: most in any tile.
    lines: most of text below any frame."""

    width: int
    tile: tuple[int, int]
    cell_width: int
    columns: int
    frames: int
    has_bars: bool
    lines: int = 1

    @property
    def below(self) -> int:
        """Room below a frame."""
        return BELOW + (self.lines - 1) * LINE

    @property
    def head(self) -> int:
        """From a row's top to its first frame."""
        return WORD + 14 + (BARS + NAMES + 6 if self.has_bars else 0)

    @property
    def height(self) -> int:
        return self.head + self.frames * (self.tile[1] + self.below)


def most_attended(
    attention: AttentionDocument, word: int, frame_times: Sequence[float]
) -> tuple[int, int] | None:
    """(moment, frame) that a word looked at most: the heaviest moment and the frame nearest its middle.

    None for a word that had no attention. Of equal moments the first counts, as numpy's argmax has it.
    """
    weights = attention.temporal[word]
    if not weights:
        return None
    moment = max(range(len(weights)), key=weights.__getitem__)
    return moment, frame_of(attention, moment, frame_times)


def frame_of(attention: AttentionDocument, moment: int, frame_times: Sequence[float]) -> int:
    """The frame nearest the middle of a moment, of those inside it where there are any."""
    start, end = attention.times[moment]
    inside = [k for k, time in enumerate(frame_times) if start <= time < end or time == start]
    middle = (start + end) / 2
    return min(inside or range(len(frame_times)), key=lambda k: abs(frame_times[k] - middle))


def tile_frames(
    attention: AttentionDocument, word: int, frame_times: Sequence[float]
) -> list[tuple[int, int]]:
    """(moment, frame) of each frame in a word's tile: G2L's key frames, or the one that it looked at most."""
    if attention.extras.selected is not None and attention.extras.selected[word]:
        chosen = [each.moment for each in attention.extras.selected[word]]
        return [(moment, frame_of(attention, moment, frame_times)) for moment in chosen]
    most = most_attended(attention, word, frame_times)
    return [] if most is None else [most]


def word_rows(seen: PictureSource, tiles: Tiles) -> list[Image.Image]:
    numbers = range(len(seen.attention.words))
    rows = [numbers[start : start + tiles.columns] for start in range(0, len(numbers), tiles.columns)]
    return [_row(row, seen, tiles) for row in rows]


def _row(row: range, seen: PictureSource, tiles: Tiles) -> Image.Image:
    found = drawing.block(tiles.width, tiles.height)
    pen = ImageDraw.Draw(found)
    for column, word in enumerate(row):
        left = MARGIN + column * (tiles.cell_width + GAP)
        said, size = drawing.fitted(seen.attention.words[word], WORD, tiles.cell_width + GAP - 6)
        drawing.centred(pen, (left + tiles.cell_width / 2, 0), said, size, INK)
        if tiles.has_bars:
            _bars(pen, (left, WORD + 14), tiles.cell_width, seen.attention, word)
        _frames(found, left, word, seen, tiles)
    return found


def _frames(page: Image.Image, left: int, word: int, seen: PictureSource, tiles: Tiles) -> None:
    pen, centre = ImageDraw.Draw(page), left + tiles.cell_width / 2
    x, y = round(centre - tiles.tile[0] / 2), tiles.head
    moments = [moment for moment, _ in tile_frames(seen.attention, word, seen.times)]
    if not moments:
        _no_attention(pen, (x, y), tiles.tile)
    for moment in moments:
        picture, time = seen.frame_with_heat(moment, _places(seen.attention, word, moment), tiles.tile)
        page.paste(picture, (x, y))
        y += tiles.tile[1]
        _moments(pen, (left, y + 7), tiles.cell_width, seen.attention, word, moment)
        for number, said in enumerate(said_below(seen.attention, word, time)):
            fitted = drawing.fitted(said, SMALL, tiles.cell_width + GAP - 6)
            drawing.centred(pen, (centre, y + 18 + number * LINE), *fitted, QUIET)
        y += tiles.below


def _moments(
    pen: ImageDraw.ImageDraw,
    corner: tuple[float, float],
    width: float,
    attention: AttentionDocument,
    word: int,
    moment: int,
) -> None:
    """The word's weights over the clip; no moment stands out where they are spread over all of it."""
    marked = moment if attention.extras.selected is not None or not attention.is_spread(word) else None
    weights = attention.temporal[word]
    if weights:
        drawing.draw_timeline(pen, corner, width, weights, attention.clip_parts(), marked)


def said_below(attention: AttentionDocument, word: int, time: float) -> list[str]:
    """The lines below a word's frame: its time, or that no moment stands out, and what STaTS has beside.

    G2L's key frames were read whatever their weights, so that their times are always told.
    """
    is_spread = attention.is_spread(word)
    lines = [] if is_spread and attention.extras.selected is None else [drawing.seconds(time)]
    return [*lines, *([SPREAD] if is_spread else []), *_branch(attention, word)]


def _places(attention: AttentionDocument, word: int, moment: int) -> Sequence[float] | None:
    """A word's weights of a moment's cells or boxes; None where it attended to time alone."""
    rows = None if attention.spatial is None else attention.spatial.weights[word]
    return None if rows is None else rows[moment]


def _branch(attention: AttentionDocument, word: int) -> list[str]:
    """STaTS: how much of the word came from following regions, the rest from the chosen frame."""
    branch = attention.extras.branch
    return [] if branch is None else [f"ST {100 * branch[word][0][0]:.0f} %"]


def _bars(
    pen: ImageDraw.ImageDraw, corner: tuple[int, int], width: int, attention: AttentionDocument, word: int
) -> None:
    """A bar a layer, as high as its weight of the whole height, the heaviest in ACCENT; names below."""
    layers, (x, y) = attention.extras.layers, corner
    weights = None if layers is None else layers.weights[word]
    pen.line((x, y + BARS, x + width, y + BARS), fill=FAINT, width=2)
    if layers is None or weights is None:
        return
    step = width / len(weights)
    for k, (name, weight) in enumerate(zip(layers.names, weights, strict=True)):
        ink = ACCENT if weight == max(weights) else QUIET
        left = x + k * step + step * 0.2
        top = min(y + BARS * (1 - weight), y + BARS - 1)  # a weight of nothing is a line still
        pen.rectangle((left, top, left + step * 0.6, y + BARS - 1), fill=ink)
        said = drawing.fitted(name, NAMES - 5, step - 4)
        drawing.centred(pen, (x + (k + 0.5) * step, y + BARS + 3), *said, QUIET)


def over(
    attention: AttentionDocument, weights: Sequence[float] | None, moment: int, picture: Image.Image
) -> Image.Image:
    """The picture with weights of its cells or boxes over it; as it is where there are none."""
    spatial = attention.spatial
    if spatial is None or weights is None:
        return picture
    if not isinstance(spatial, GridAttention):
        return heatmap.over_boxes(picture, weights, spatial.boxes[moment])
    return heatmap.over_cells(picture, weights, *spatial.edges())


def _no_attention(pen: ImageDraw.ImageDraw, corner: tuple[int, int], size: tuple[int, int]) -> None:
    x, y = corner
    pen.rectangle((x, y, x + size[0] - 1, y + size[1] - 1), fill=FAINT)
    drawing.centred(pen, (x + size[0] / 2, y + size[1] / 2 - SMALL / 2), "no attention", SMALL, QUIET)
