"""Declares how a film is cut into segments, and what a segment is, with the request that serves them.

shots    a segment is a shot; one that lasts too long is cut, one that is too short stays with the one
         before
pieces   segments of equal length
none     the whole film is one segment
"""

import math
from dataclasses import dataclass, replace
from typing import Literal, Self

from extractors.features import Footage, FrameSize
from extractors.media.request import DecodeRequest
from extractors.windows import Windows

Segmentation = Literal["auto", "shots", "pieces", "none"]

#: Seconds from which a film is cut into its shots where nothing else is asked for.
LONG_FILM = 60.0
#: Frames a second that shots are looked for in, and that segments' frames are chosen from.
LOOKED_AT = 25.0
#: Above this number there is no window left out: as many as the decoder's limit on frames lets through.
MOST = 2_000_000
LEAST_SECONDS, MOST_SECONDS = 0.5, 24 * 3600.0


@dataclass(frozen=True)
class SegmentOptions:
    """Describes how a film is cut.

    Raises ValueError where the numbers make no sense together.
    """

    #: What a segment is; "auto" takes shots from ``LONG_FILM`` on, and else the whole.
    kind: Segmentation = "auto"
    seconds: float | None = None  #: length of a piece
    minimum: float = 2.0  #: seconds that a segment lasts at least, unless the film itself is shorter
    #: Seconds after which a shot is cut; one that ends within ``minimum`` after that is left whole.
    maximum: float = 20.0

    def __post_init__(self) -> None:
        if (self.seconds is not None) != (self.kind == "pieces"):
            raise ValueError("pieces have a length in seconds, and nothing else has")
        if self.seconds is not None and not LEAST_SECONDS <= self.seconds <= MOST_SECONDS:
            raise ValueError(f"a segment lasts from {LEAST_SECONDS:g} to {MOST_SECONDS:g} seconds")
        if not 0 < self.minimum <= self.maximum / 2:
            raise ValueError("the shortest segment is above zero, and at most half as long as the longest")

    @classmethod
    def parse(cls, text: str, minimum: float = 2.0, maximum: float = 20.0) -> Self:
        """Reads the words of a form or a command line.

        Args:
            text: "auto", "shots", "none", or a piece's length in seconds.
            minimum: seconds of the shortest segment.
            maximum: seconds of the longest shot.

        Raises:
            ValueError: nothing of these; the message says what may be given.
        """
        word = text.strip().lower()
        if word in ("auto", "shots", "none"):
            return cls(kind=word, minimum=minimum, maximum=maximum)  # type: ignore[arg-type]
        try:
            seconds = float(word)
        except ValueError:
            raise ValueError(f"segments are shots, none, auto or a number of seconds, not {text!r}") from None
        return cls("pieces", seconds, minimum, maximum)

    def resolved(self, duration: float) -> Self:
        """Returns the same with "auto" replaced by what it means for a film of ``duration`` seconds."""
        if self.kind != "auto":
            return self
        kind: Segmentation = "shots" if duration >= LONG_FILM else "none"
        return replace(self, kind=kind)

    @property
    def longest(self) -> float:
        """Seconds after which a segment is cut in any case; infinity where it never is."""
        if self.kind == "shots":
            return self.maximum
        return math.inf if self.seconds is None else self.seconds

    @property
    def shortest(self) -> float:
        """Seconds that a segment lasts at least; a rest of the film below that is joined to the last one."""
        return self.minimum if self.seconds is None else min(self.minimum, self.seconds / 2)


@dataclass(frozen=True)
class Segment:
    """Seconds of a film, from its first shown frame, that are captioned as if they were a clip.

    representative: when its representative frame is shown: of those that were looked at, the one that is
    most like the others, so that a flash or a fade does not stand for a shot.
    """

    start: float
    end: float
    representative: float

    @property
    def duration(self) -> float:
        return self.end - self.start


@dataclass(frozen=True, eq=False)
class SegmentFrames:
    """A finished segment and the frames of it that a captioner looks at, on a clock that begins with it.

    picture: index of the representative frame. film: seconds of the whole film, as far as is known.
    first_picture: seconds on the clock of players at which the film's first frame is shown.
    """

    segment: Segment
    footage: Footage
    picture: int
    film: float
    first_picture: float = 0.0


@dataclass(frozen=True)
class SegmentPlan:
    """The frames of a segment: ``count``, each on screen in the middle of an equal part of its time.

    short_side: pixels of the shorter edge at most. sizes: further sizes, made of that one.
    """

    count: int
    short_side: int
    sizes: tuple[FrameSize, ...] = ()

    @classmethod
    def of(cls, request: DecodeRequest) -> Self | None:
        """Makes the plan that serves a captioner's request, or None where it needs the segment read again.

        Frames spread over the time can be chosen while a segment is still open. Windows of neighbouring
        frames, a steady rate, sound, and frames in other sizes than those that are handed over cannot: how
        many they are, or how they lie, is known only when the segment's length is.
        """
        sampling, side = request.sampling, request.short_side
        if request.windows or request.audio_rate or sampling is None or sampling.fps or side is None:
            return None
        if any(size.short_side != side for size in request.sizes):
            return None
        return cls(sampling.count, side, request.sizes)

    def stream_request(self, options: SegmentOptions, start: float = 0.0) -> DecodeRequest:
        """Makes the request to the decoder, from ``start`` seconds of the film on; options: "auto" resolved.

        Where shots are looked for every frame, up to ``LOOKED_AT`` a second; else twice as many as a segment
        takes, so that every second one lies in the middle of a part.
        """
        rate = LOOKED_AT
        if options.seconds is not None:
            rate = min(LOOKED_AT, 2 * self.count / options.seconds)
        windows = Windows(extraction_fps=rate, most=MOST)
        part = (start, math.inf) if start > 0 else None
        return DecodeRequest(None, self.short_side, windows=(windows,), part=part)
