"""Draws a poster, which chats show of a link: one frame, a word's place lit, the caption below; and a clip of
some seconds to pass on, of the posters of a caption's words in the order of their moments.

Pillow only, but for MP4. Sizes are pixels.
"""

import io
from collections.abc import Sequence
from itertools import groupby
from typing import Literal, TypeAlias

from PIL import Image, ImageDraw, ImageEnhance, ImageFilter, ImageFont, ImageOps

from app.attention_picture.word_tiles import PictureSource, list_tile_moments
from models.caption import AttentionDocument

SIZE = (1200, 630)
MARGIN, TEXT, PITCH = 44, 44, 58
SHADE = 250  #: height of the dark ground below the caption
WHITE, DIM, ACCENT, DARK = (255, 255, 255), (206, 200, 192), (255, 154, 92), (27, 13, 4)
NAME = "Reelword"
ClipKind: TypeAlias = Literal["mp4", "webp", "gif"]
SMALL = (600, 315)  #: of webp and gif; mp4 has the poster's own size
SHORTEST, LONGEST = 3000, 6000  #: milliseconds
WORD_TIME = 900  #: milliseconds that a word is shown, where the bounds leave it
RATE = 10  #: pictures a second of mp4, which some players want to be steady
H264 = {"crf": "20", "preset": "veryfast", "tune": "stillimage"}


def draw_poster(
    caption: str,
    frames: Sequence[Image.Image],
    times: Sequence[float],
    attention: AttentionDocument | None,
    word: str,
) -> Image.Image:
    """Draws a poster of a caption, RGB, SIZE.

    Args:
        frames: those that the captioner saw, in order; one at least.
        times: their seconds.
        attention: of the caption, None where there is none.
        word: of the caption, to be lit; another is passed over.
    """
    picture, words = frames[len(frames) // 2].convert("RGB"), caption.split()
    content = attention.content if attention is not None and attention.content else [True] * len(words)
    lit = words.index(word) if word in words else None
    if attention is not None and lit is not None:
        picture = _light(attention.shown, lit, frames, times)
    poster = _fill(picture)
    fall = Image.linear_gradient("L").resize((SIZE[0], SHADE)).point(lambda level: level * 0.9)
    poster.paste((8, 7, 7), (0, SIZE[1] - SHADE), fall)
    _write(poster, words, content, lit)
    return poster


def _light(
    attention: AttentionDocument, word: int, frames: Sequence[Image.Image], times: Sequence[float]
) -> Image.Image:
    """Draws the frame of a word's heaviest moment with the word's places over it."""
    moment = next(iter(list_tile_moments(attention, word)), 0)
    size = ImageOps.contain(frames[0], SIZE).size
    return PictureSource(attention, frames, times).draw_word(word, moment, size)[0]


def _fill(picture: Image.Image) -> Image.Image:
    """Lays the whole picture over itself, blurred, so that none of it is cut off."""
    ground = ImageOps.fit(picture, SIZE, Image.Resampling.BILINEAR).filter(ImageFilter.GaussianBlur(28))
    poster = ImageEnhance.Brightness(ground).enhance(0.45)
    whole = ImageOps.contain(picture, SIZE, Image.Resampling.LANCZOS)
    poster.paste(whole, ((SIZE[0] - whole.width) // 2, (SIZE[1] - whole.height) // 2))
    return poster


def _write(poster: Image.Image, words: Sequence[str], content: Sequence[bool], lit: int | None) -> None:
    """Writes the caption at the bottom, content words bold, the lit one on a ground of its own."""
    pen, font = ImageDraw.Draw(poster), ImageFont.load_default(TEXT)
    place: list[tuple[int, float, float]] = []
    x, line = float(MARGIN), 0
    for text in words:
        length = font.getlength(text)
        if x + length > SIZE[0] - MARGIN:
            x, line = float(MARGIN), line + 1
        place.append((line, x, length))
        x += length + TEXT * 0.34
    lines = len(list(groupby(place, key=lambda each: each[0])))
    for k, (text, (row, left, length)) in enumerate(zip(words, place, strict=True)):
        top = SIZE[1] - MARGIN - (lines - row) * PITCH + 8
        if k == lit:
            pen.rounded_rectangle((left - 9, top - 4, left + length + 9, top + TEXT + 8), 9, fill=ACCENT)
        ink = DARK if k == lit else WHITE if content[k] else DIM
        pen.text((left, top), text, fill=ink, font=font, stroke_width=int(content[k]), stroke_fill=ink)
    name = ImageFont.load_default(28)
    pen.text((SIZE[0] - MARGIN, MARGIN - 16), NAME, fill=WHITE, font=name, anchor="ra", stroke_width=1)


def draw_clip(
    caption: str,
    frames: Sequence[Image.Image],
    times: Sequence[float],
    attention: AttentionDocument,
    kind: ClipKind,
) -> bytes:
    """Draws a clip that repeats itself.

    Args:
        frames: those that the captioner saw, in order; one at least.
        times: their seconds.

    Returns:
        The file: each content word once, in the order of their moments; one picture of a caption without any.

    Raises:
        ImportError: mp4 is asked for, and PyAV is not installed.
    """
    words = order_words(attention) or [""]
    pictures = [draw_poster(caption, frames, times, attention, word) for word in words]
    each = min(max(WORD_TIME * len(words), SHORTEST), LONGEST) // len(words)
    if kind == "mp4":
        return _write_mp4(pictures, each)
    first, *others = [picture.resize(SMALL, Image.Resampling.LANCZOS) for picture in pictures]
    out = io.BytesIO()
    first.save(out, kind.upper(), save_all=True, append_images=others, duration=each, loop=0, quality=80)
    return out.getvalue()


def _write_mp4(pictures: Sequence[Image.Image], duration: int) -> bytes:
    """Writes H.264, which browsers and chats play; duration: milliseconds of each picture."""
    import av  # the API's own image goes without

    out = io.BytesIO()
    with av.open(out, "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=RATE, options=H264)
        stream.width, stream.height = pictures[0].size
        stream.pix_fmt = "yuv420p"
        for picture in pictures:
            frame = av.VideoFrame.from_image(picture)  # type: ignore[no-untyped-call]
            for _ in range(round(duration * RATE / 1000)):
                container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return out.getvalue()


def order_words(attention: AttentionDocument) -> list[str]:
    """Lists the drawn words by their moments, each once; those of one moment as the caption has them."""
    shown = attention.shown
    ordered = sorted(
        (moment, word) for word in shown.drawn_words for moment in list_tile_moments(shown, word)[:1]
    )
    return list(dict.fromkeys(shown.words[word] for _, word in ordered))
