"""Draws a clip of some seconds to pass on: the posters of a caption's words in the order of their moments."""

import io
from collections.abc import Sequence
from typing import Literal, TypeAlias

from PIL import Image

from app.attention_picture.poster import draw_poster
from app.attention_picture.word_tiles import list_tile_moments
from models.caption import AttentionDocument

ClipKind: TypeAlias = Literal["mp4", "webp", "gif"]
SMALL = (600, 315)  #: of webp and gif; mp4 has the poster's own size
SHORTEST, LONGEST = 3000, 6000  #: milliseconds
WORD_TIME = 900  #: milliseconds that a word is shown, where the bounds leave it
RATE = 10  #: pictures a second of mp4, which some players want to be steady
H264 = {"crf": "20", "preset": "veryfast", "tune": "stillimage"}


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
