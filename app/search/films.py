"""Makes moments of films: their segments, captioned now where no earlier run has done it."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from PIL import Image

from app.search.moments import Moment
from app.segments.film_captioner import FilmCaptioner
from app.segments.journal import KnownSegment
from app.segments.summary import INSTANT
from extractors.decoder.decoder import Decoder
from extractors.media.request import DecodeRequest
from extractors.windows import Sampling


def moments_of_film(film: Path, name: str, captioner: FilmCaptioner, decoder: Decoder) -> Iterator[Moment]:
    """Yields a moment for each segment, in their order.

    Args:
        film: a video file; what is known of it is in the captioner's journal, or is found out now.
        name: how the film is named to the user.
        captioner: captions it by segments.
        decoder: reads the pictures of those that are drawn.

    Raises:
        MediaError: its leaves.
        JobFailure: why the film cannot be captioned.
    """
    captioner.caption(film)
    for segment in captioner.known(film):
        yield _moment(film, name, segment, decoder)


def _moment(film: Path, name: str, segment: KnownSegment, decoder: Decoder) -> Moment:
    shown = segment.on_players_clock
    return Moment(
        source=name,
        start=shown.start,
        end=shown.end,
        time=shown.representative,
        caption=shown.caption,
        vector=segment.picture,
        picture=partial(_read_picture, film, segment.document.representative, decoder),
    )


def _read_picture(film: Path, time: float, decoder: Decoder) -> Image.Image:
    """Reads the frame on screen so many seconds after the first one. Raises leaves of MediaError."""
    request = DecodeRequest(Sampling(count=1), part=(time, time + INSTANT))
    return Image.fromarray(decoder.decode(film, request).frames.pixels[0])
