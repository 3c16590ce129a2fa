"""Draws a tile for each word, after STaTS figures 6 to 9: its heaviest moment's frame, heat where in it.

What explains a word is in its tile, by its kind: chosen moments below each other, weights over choices as
bars above the frame or, of two choices, as a line below it, text below that.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image, ImageDraw

from app.attention_picture import drawing, heatmap
from app.attention_picture.drawing import ACCENT, FAINT, GAP, INK, MARGIN, QUIET, SMALL, WORD
from models.caption import AttentionDocument, GridAttention, TextExplanation, WeightsExplanation

BARS, NAMES = 46, 18  #: heights of bars and of the choices' names below them
BELOW, LINE = 44, 21  #: room below a frame, for the line of moments and the time; and for one more line
SPREAD = "all along"  #: written for a word that no moment stands out for


@dataclass(frozen=True, eq=False)
class PictureSource:
    """Holds what is drawn: the attention, and the frames, all of one size, with their seconds."""

    attention: AttentionDocument
    frames: Sequence[Image.Image]
    times: Sequence[float]

    def draw_moment(
        self,
        moment: int,
        weights: Sequence[float] | None,
        size: tuple[int, int],
        box: Sequence[float] | None = None,
    ) -> tuple[Image.Image, float]:
        """Draws a moment's frame, with weights of its cells or boxes, and returns it with its seconds.

        Args:
            weights: of its cells or boxes, None for the frame alone.
            size: (width, height) of the picture.
            box: a place to be outlined, x0 y0 x1 y1 in [0, 1].
        """
        frame = find_frame(self.attention, moment, self.times)
        picture = self.frames[frame].convert("RGB").resize(size, Image.Resampling.LANCZOS)
        picture = overlay_attention(self.attention, weights, moment, picture)
        if box is not None:
            outline = [part * side for part, side in zip(box, (*size, *size), strict=True)]
            ImageDraw.Draw(picture).rectangle(outline, outline=ACCENT, width=2)
        return picture, self.times[frame]

    def draw_word(self, word: int, moment: int, size: tuple[int, int]) -> tuple[Image.Image, float]:
        """Draws a moment of a word as ``draw_moment`` does, with its box or its weights over it.

        Args:
            word: its place in the caption.
            moment: its place in the attention's times.
            size: (width, height) of the picture, in pixels.
        """
        box = _find_box(self.attention, word, moment)
        return self.draw_moment(moment, find_heat(self.attention, word, moment), size, box)


@dataclass(frozen=True)
class TileLayout:
    """Holds how words are laid out."""

    width: int  #: pixels of all columns
    tile: tuple[int, int]  #: (width, height) of a frame in its cell
    cell_width: int
    columns: int
    frames: int  #: most in any tile
    has_bars: bool  #: whether bars stand above the frames
    lines: int = 1  #: of text below a frame, at most

    @property
    def below(self) -> int:
        """Returns the room below a frame."""
        return BELOW + (self.lines - 1) * LINE

    @property
    def head(self) -> int:
        """Returns the room from a row's top to its first frame."""
        return WORD + 14 + (BARS + NAMES + 6 if self.has_bars else 0)

    @property
    def height(self) -> int:
        return self.head + self.frames * (self.tile[1] + self.below)


def find_frame(attention: AttentionDocument, moment: int, frame_times: Sequence[float]) -> int:
    """Finds the number of the frame nearest the middle of a moment, of those inside it if there are any.

    Args:
        frame_times: seconds of the frames.
    """
    start, end = attention.times[moment]
    inside = [k for k, time in enumerate(frame_times) if start <= time < end or time == start]
    middle = (start + end) / 2
    return min(inside or range(len(frame_times)), key=lambda k: abs(frame_times[k] - middle))


def list_tile_moments(attention: AttentionDocument, word: int) -> list[int]:
    """Lists the moments of a word's tile: those that were chosen for it, or its heaviest."""
    place = attention.locate(word).moment
    most = attention.find_drawn_moment(word) if place is None else place
    return [each.moment for each in attention.list_chosen(word)] or ([] if most is None else [most])


def _find_box(attention: AttentionDocument, word: int, moment: int) -> Sequence[float] | None:
    return {each.moment: each.box for each in attention.list_chosen(word)}.get(moment)


def find_heat(attention: AttentionDocument, word: int, moment: int) -> Sequence[float] | None:
    """Finds the weights that are drawn over a moment: None where a box is, or they name no place.

    Args:
        attention: of the caption.
        word: its place in the caption.
        moment: its place in the attention's times.
    """
    return None if _find_box(attention, word, moment) else attention.find_places(word, moment)


def draw_word_rows(seen: PictureSource, tiles: TileLayout) -> list[Image.Image]:
    """Draws all words' tiles, a block for each row of them."""
    numbers = seen.attention.drawn_words
    rows = [numbers[start : start + tiles.columns] for start in range(0, len(numbers), tiles.columns)]
    return [_draw_row(row, seen, tiles) for row in rows]


def _draw_row(row: Sequence[int], seen: PictureSource, tiles: TileLayout) -> Image.Image:
    canvas = drawing.make_block(tiles.width, tiles.height)
    pen = ImageDraw.Draw(canvas)
    for column, word in enumerate(row):
        left = MARGIN + column * (tiles.cell_width + GAP)
        label, size = drawing.fit_text(seen.attention.words[word], WORD, tiles.cell_width + GAP - 6)
        drawing.draw_centred(pen, (left + tiles.cell_width / 2, 0), label, size, INK)
        if tiles.has_bars:
            _draw_bars(pen, (left, WORD + 14), tiles.cell_width, seen.attention, word)
        _draw_frames(canvas, left, word, seen, tiles)
    return canvas


def _draw_frames(page: Image.Image, left: int, word: int, seen: PictureSource, tiles: TileLayout) -> None:
    pen, centre = ImageDraw.Draw(page), left + tiles.cell_width / 2
    x, y = round(centre - tiles.tile[0] / 2), tiles.head
    moments = list_tile_moments(seen.attention, word)
    if not moments:
        pen.rectangle((x, y, x + tiles.tile[0] - 1, y + tiles.tile[1] - 1), fill=FAINT)
        drawing.draw_centred(pen, (centre, y + tiles.tile[1] / 2 - SMALL / 2), "no attention", SMALL, QUIET)
    for moment in moments:
        picture, time = seen.draw_word(word, moment, tiles.tile)
        page.paste(picture, (x, y))
        y += tiles.tile[1]
        _draw_moments(pen, (left, y + 7), tiles.cell_width, seen.attention, word, moment)
        for number, text in enumerate(write_below(seen.attention, word, moment, time)):
            fitted = drawing.fit_text(text, SMALL, tiles.cell_width + GAP - 6)
            drawing.draw_centred(pen, (centre, y + 18 + number * LINE), *fitted, QUIET)
        y += tiles.below


def _draw_moments(
    pen: ImageDraw.ImageDraw,
    corner: tuple[float, float],
    width: float,
    attention: AttentionDocument,
    word: int,
    moment: int,
) -> None:
    """Draws the word's weights over the clip; no moment stands out where they are spread over all of it."""
    marked = moment if attention.list_chosen(word) or not attention.is_spread(word) else None
    weights = attention.temporal[word]
    if weights:
        drawing.draw_timeline(pen, corner, width, weights, attention.clip_parts(), marked)


def write_below(attention: AttentionDocument, word: int, moment: int, time: float) -> list[str]:
    """Writes the lines below a frame: its time, or that no moment stands out, and what explains the word.

    Moments that were chosen were read whatever their weights, so that their times are always written; where
    one has a text of its own, as a label has, the word is of that and not of the whole clip.

    Args:
        moment: whose frame it is.
        time: of the frame, in seconds.
    """
    chosen = attention.list_chosen(word)
    is_spread = attention.is_spread(word) and not (chosen and attention.evidence)
    lines = [] if is_spread and not chosen else [drawing.format_seconds(time)]
    texts = [each.text for each in chosen if each.moment == moment and each.text]
    return [
        *lines,
        *([SPREAD] if is_spread and not texts else []),
        *texts,
        *_write_explanations(attention, word),
    ]


def _write_explanations(attention: AttentionDocument, word: int) -> list[str]:
    """Writes the first of two choices with its share, the second having the rest, and sentences."""
    lines = []
    for part in attention.extras:
        if isinstance(part, WeightsExplanation) and part.choices and len(part.choices) == 2 and part.words:
            weights = part.words[word]
            lines += [] if weights is None else [f"{part.choices[0].name} {100 * weights[0]:.0f} %"]
        if isinstance(part, TextExplanation) and part.words and (text := part.words[word]):
            lines.append(text)
    return lines


def find_bars(attention: AttentionDocument) -> WeightsExplanation | None:
    """Finds the weights that are drawn as bars: over three choices or more."""
    parts = (part for part in attention.extras if isinstance(part, WeightsExplanation))
    return next((part for part in parts if part.words and len(part.choices or []) > 2), None)


def _draw_bars(
    pen: ImageDraw.ImageDraw, corner: tuple[int, int], width: int, attention: AttentionDocument, word: int
) -> None:
    """Draws a bar a choice, as high as its weight of the whole, the heaviest in ACCENT; names below."""
    bars, (x, y) = find_bars(attention), corner
    weights = None if bars is None or bars.words is None else bars.words[word]
    pen.line((x, y + BARS, x + width, y + BARS), fill=FAINT, width=2)
    if bars is None or weights is None:
        return
    step = width / len(weights)
    for k, (choice, weight) in enumerate(zip(bars.choices or [], weights, strict=True)):
        ink = ACCENT if weight == max(weights) else QUIET
        left = x + k * step + step * 0.2
        top = min(y + BARS * (1 - weight), y + BARS - 1)  # a weight of nothing is a line still
        pen.rectangle((left, top, left + step * 0.6, y + BARS - 1), fill=ink)
        name = drawing.fit_text(choice.name, NAMES - 5, step - 4)
        drawing.draw_centred(pen, (x + (k + 0.5) * step, y + BARS + 3), *name, QUIET)


def overlay_attention(
    attention: AttentionDocument, weights: Sequence[float] | None, moment: int, picture: Image.Image
) -> Image.Image:
    """Lays weights of a moment's cells or boxes over a new picture; without weights it is the same one.

    Args:
        attention: of the caption; it says where cells or boxes lie.
        weights: of the cells or boxes, None for none.
        picture: the moment's frame.
    """
    spatial = attention.spatial
    if spatial is None or weights is None:
        return picture
    if not isinstance(spatial, GridAttention):
        return heatmap.overlay_boxes(picture, weights, spatial.boxes[moment])
    return heatmap.overlay_cells(picture, weights, *spatial.edges())
