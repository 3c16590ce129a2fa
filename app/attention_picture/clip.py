"""Draws a clip of some seconds to pass on: the posters of a caption's words in the order of their moments."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Literal

from PIL import Image

from app.attention_picture.poster import draw_poster
from models.caption import AttentionDocument

CLIP_SIZE = (600, 315)
SHORTEST, LONGEST = 3000, 6000  #: milliseconds
WORD_TIME = 900  #: milliseconds that a word is shown, where the bounds leave it


def draw_clip(
    caption: str,
    frames: Sequence[Image.Image],
    times: Sequence[float],
    attention: AttentionDocument,
    kind: Literal["webp", "gif"],
) -> bytes:
    """Draws a clip that repeats itself.

    Args:
        caption: the sentence.
        frames: those that the captioner saw, in order; one at least.
        times: their seconds.
        attention: of the caption.
        kind: the format.

    Returns:
        The file: each content word once, in the order of their moments; one picture of a caption without any.
    """
    words = order_words(attention) or [""]
    pictures = [
        draw_poster(caption, frames, times, attention, word).resize(CLIP_SIZE, Image.Resampling.LANCZOS)
        for word in words
    ]
    each = min(max(WORD_TIME * len(words), SHORTEST), LONGEST) // len(words)
    first, *others = pictures
    out = io.BytesIO()
    first.save(out, kind.upper(), save_all=True, append_images=others, duration=each, loop=0, quality=80)
    return out.getvalue()


def order_words(attention: AttentionDocument) -> list[str]:
    """Lists the drawn words by their moments, each once; those of one moment as the caption has them."""
    shown = attention.shown
    moments = {word: shown.find_drawn_moment(word) for word in shown.drawn_words}
    ordered = sorted((moment, word) for word, moment in moments.items() if moment is not None)
    return list(dict.fromkeys(shown.words[word] for _, word in ordered))
