"""Sums up a film in a line: what its captioner writes of the segments' representative frames, as a clip."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from app.documents.segments import SegmentDocument
from app.errors import JobFailure
from app.jobs.options import CaptionOptions
from app.pipeline.engine_protocol import ignore_progress
from app.segments.caption_segments import SegmentEngine
from extractors.decoder.decoder import Decoder
from extractors.features import Footage
from extractors.media.request import Decoded, DecodeRequest, Limits
from extractors.windows import FRAMES, Sampling

INSTANT = 0.001  #: seconds: so short a part shows one frame
SECONDS_EACH = 1.0  #: that a frame is shown in the clip


def summarize(
    film: Path,
    segments: Sequence[SegmentDocument],
    engine: SegmentEngine,
    options: CaptionOptions,
    decoder: Decoder,
    limits: Limits | None = None,
) -> str:
    """Captions the frames that stand for segments spread over the film's time.

    Args:
        film: the file, in which the decoder jumps to each of them.
        segments: all of the film, one at least.
        engine: writes captions; its models are loaded.
        limits: of decoding, each frame by itself.

    Raises:
        MediaError: a frame cannot be read again.
        JobFailure: why the engine cannot caption.
    """
    options = engine.info.resolve(options)
    clip = read_summary_clip(film, segments, engine.info.request_for(options.choice), decoder, limits)
    [answer] = engine.describe_and_caption(
        [clip.footage], [options.model_copy(update={"attention": False})], ignore_progress
    )
    if isinstance(answer, JobFailure):
        raise answer
    return answer.answer.caption or ""


@dataclass(frozen=True, eq=False)
class SummaryClip:
    """Holds the representative frames of a film as a clip."""

    footage: Footage
    shown: list[float]  #: seconds of the film at which they are shown, rising
    end: float  #: of the film, in seconds

    def film_time(self, seconds: float) -> float:
        """Returns the film's second that a second of the clip stands for, in proportion between frames."""
        clip = [0.0, *self.footage.pts, self.footage.duration]
        return float(np.interp(seconds, clip, [0.0, *self.shown, self.end]))


def read_summary_clip(
    film: Path,
    segments: Sequence[SegmentDocument],
    request: DecodeRequest,
    decoder: Decoder,
    limits: Limits | None = None,
) -> SummaryClip:
    """Reads the frames that stand for segments spread over the film's time. Raises MediaError.

    Args:
        film: the file, in which the decoder jumps to each of them.
        segments: all of the film, one at least.
        request: of the captioner, for the frames' sizes and number.
        limits: of decoding, each frame by itself.
    """
    times = moments(segments, request.sampling.count if request.sampling else FRAMES)
    frame = replace(request, sampling=Sampling(count=1), windows=(), audio_rate=None)  # in all its sizes
    parts = [replace(frame, part=(time, time + INSTANT)) for time in times]
    decoded = [decoder.decode(film, part, limits) for part in parts]
    return SummaryClip(_as_a_clip(decoded), times, segments[-1].end)


def moments(segments: Sequence[SegmentDocument], count: int) -> list[float]:
    """Chooses ``count`` representative frames at most (seconds): what is on in the middle of equal parts."""
    end = segments[-1].end
    instants = Sampling(count).instants(end)
    shown = (next((s for s in reversed(segments) if s.start <= instant), segments[0]) for instant in instants)
    return list(dict.fromkeys(segment.representative for segment in shown))


def _as_a_clip(decoded: Sequence[Decoded]) -> Footage:
    """Puts frames one after the other, each in the middle of its second."""
    count = len(decoded)
    times = (np.arange(count, dtype=np.float64) + 0.5) * SECONDS_EACH
    pixels = np.concatenate([each.frames.pixels for each in decoded])
    sized = {size: np.concatenate([each.sized[size] for each in decoded]) for size in decoded[0].sized}
    return Footage(pixels, times, count * SECONDS_EACH, 1 / SECONDS_EACH, None, sized)
