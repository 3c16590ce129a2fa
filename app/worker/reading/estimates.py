"""Estimates what a video's caption will cost one worker, by a look at it and by what that worker measured."""

import math
import time
from dataclasses import dataclass, replace
from pathlib import Path

from app.documents.job import Answer, Estimate
from app.jobs.captioner_choice import CaptionerChoices
from app.jobs.options import CaptionOptions
from app.pipeline.engine_protocol import EngineInfo, media_answer
from extractors.decoder.decoder import Decoder
from extractors.media.request import Decoded, DecodeRequest, Limits
from extractors.shots.segment import LOOKED_AT, SegmentOptions
from extractors.windows import Sampling

SHOT_SECONDS = 6.0  #: that a shot is taken to last: only reading all of a film would tell
MEASURED_SECONDS = 10.0  #: of a film that are decoded to learn how quickly that goes
PROBE = DecodeRequest(Sampling(count=1))
CUTS_SIDE = 48  #: pixels of the shorter edge, as cuts are looked for


@dataclass(frozen=True)
class CostEstimator:
    """Looks at videos with a worker's own decoder."""

    decoder: Decoder
    engine: EngineInfo  #: has what its captioners took for a grey video
    limits: Limits  #: of decoding

    def check(self, options: CaptionOptions) -> None:
        """Raises what a caption with these options would raise at once: CaptionerUnknown and others."""
        CaptionerChoices(self.engine.captioners, self.engine.default).resolve(options)

    def clip(self, options: CaptionOptions, decoded: Decoded, seconds: float) -> Answer:
        """Estimates a video that is captioned as a whole.

        Args:
            options: who writes filled in.
            decoded: its frames, as the captioner would see them.
            seconds: that decoding took.
        """
        caption = self._caption_seconds(options)
        total = None if caption is None else round(seconds + caption, 3)
        estimate = Estimate(seconds=total, frames=len(decoded.frames))
        return media_answer(decoded, seconds, options).model_copy(update={"estimate": estimate})

    def film(self, options: CaptionOptions, path: Path) -> Answer:
        """Estimates a film that is cut into segments, of its first seconds. Raises leaves of MediaError."""
        probed, probing = self._timed(PROBE, path)
        duration = probed.video.duration
        cut = SegmentOptions.parse(options.segments or "shots")
        each = min(cut.seconds or SHOT_SECONDS, duration)
        segments = max(1, math.ceil(duration / each))
        part = replace(self.engine.request_for(options.choice), part=(0.0, each))
        frames = len(self._timed(part, path)[0].frames)
        caption = self._caption_seconds(options)
        seconds = None
        if caption is not None:
            seconds = round(self._decode_seconds(path, duration) + (segments + 1) * caption, 3)
        estimate = Estimate(seconds=seconds, frames=frames * segments, segments=segments)
        facts = media_answer(probed, probing, options)
        return facts.model_copy(update={"sampled": None, "estimate": estimate})

    def _decode_seconds(self, path: Path, duration: float) -> float:
        """Estimates how long reading all frames takes, as its first seconds do."""
        part = min(MEASURED_SECONDS, duration)
        rate = Sampling(fps=LOOKED_AT, max_frames=math.ceil(part * LOOKED_AT))
        _, took = self._timed(DecodeRequest(rate, short_side=CUTS_SIDE, part=(0.0, part)), path)
        return took * duration / part

    def _timed(self, request: DecodeRequest, path: Path) -> tuple[Decoded, float]:
        began = time.monotonic()
        return self.decoder.decode(path, request, self.limits), time.monotonic() - began

    def _caption_seconds(self, options: CaptionOptions) -> float | None:
        """Returns the seconds from frames to a caption, as measured for a grey video; None before that."""
        name = None if options.choice is None else options.choice.captioner
        return next((info.seconds for info in self.engine.captioners if info.name == name), None)
