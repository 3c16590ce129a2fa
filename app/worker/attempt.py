"""Holds how far an attempt at a job is, from the claim to its end."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from app.documents.job import Answer
from app.errors import JobFailure
from app.feature_cache.kept_features import KeptFeatures
from app.jobs.job import Stage
from app.jobs.job_store import Claim
from app.jobs.kept_segments import KeptSegments, kept_by
from app.jobs.options import CaptionOptions
from app.pipeline.engine_protocol import EngineAnswer
from app.segments.summary import SummaryClip
from app.worker.engine.shared_frames import SharedFootage, share_footage
from extractors.errors import ReelwordError
from extractors.features import Footage
from extractors.media.request import Decoded

Stop = Literal["canceled", "lost", "deadline", "handed back"]

#: Where each stage begins and ends in the progress of the whole job.
SHARES: Mapping[Stage, tuple[float, float]] = {
    "fetch": (0.0, 0.0),
    "decode": (0.0, 0.4),
    "extract": (0.4, 0.8),
    "caption": (0.8, 1.0),
}

#: Of the progress of a film that is cut: its segments. What is left is its summary.
SEGMENTS_SHARE = 0.95

#: Of the progress of a job whose video is fetched: that.
FETCH_SHARE = 0.3
MOST_MARKS = 90  #: stages of an attempt whose beginnings are kept: a film has three for each segment


@dataclass(eq=False)
class Attempt:
    """Holds how far an attempt at a job is. The thread that has it moves it on; the watchdog may stop it.

    options: the job's, who writes filled in. answer: what is known so far; reported: as much of it as is on
    the record. ended_at: when its end, or its return to the queue, was there too. film: of one that is cut
    into segments, the share of it that is captioned; else None. clip: what sums it up, once all of it is.
    kept: its finished segments, those of an earlier attempt at first. has_gained: whether this attempt has
    finished one of them. fetched: seconds that fetching the video took; None where it was uploaded. error:
    why the job has failed. marks: when each stage began, in seconds since 1970, as far as there is room.
    first_attempt: which one this turn began with. feature_key: digest of its file, and what else names its
    features in the cache. features: found there, in place of ``decoded``. shared: what was decoded, in
    memory that the engine maps, in place of ``decoded`` too. stills: JPEG files of the frames that the
    captioner sees. reply: the engine's. is_alone: whether it shares no batch: something died of it,
    or of one that it shared a batch with. is_last: whether its worker holds no other job meanwhile: the
    workers of its other attempts fell silent.
    """

    claim: Claim
    stage: Stage = "decode"
    share: float = 0.0
    options: CaptionOptions | None = None
    answer: Answer = field(default_factory=Answer)
    reported: tuple[Answer | None, KeptSegments | None] = (None, None)
    decoded: Decoded | None = None
    shared: SharedFootage | None = None
    stopped: Stop | None = None
    film: float | None = None
    clip: SummaryClip | None = None
    kept: KeptSegments | None = None
    feature_key: tuple[str, str] | None = None
    features: KeptFeatures | None = None
    stills: tuple[bytes, ...] | None = None
    reply: EngineAnswer | JobFailure | None = None
    is_alone: bool = False
    is_last: bool = False
    has_gained: bool = False
    fetched: float | None = None
    error: ReelwordError | None = None
    began_at: float = field(default_factory=time.time)
    ended_at: float | None = None
    marks: list[tuple[Stage, float]] = field(default_factory=list)
    first_attempt: int = field(init=False)
    _clock: tuple[float, float | None] = (0.0, None)  # seconds used up, and since when it runs: one value

    def __post_init__(self) -> None:
        self.kept = kept_by(self.claim.job.answer)
        self.first_attempt = self.claim.job.attempt

    @property
    def is_settled(self) -> bool:
        """Whether its end, or its return to the queue, is on the record."""
        return self.ended_at is not None

    @is_settled.setter
    def is_settled(self, is_so: bool) -> None:
        self.ended_at = (self.ended_at or time.time()) if is_so else None

    @property
    def progress(self) -> float:
        if self.claim.job.submission.source_url is None:
            return self._progress
        if self.stage == "fetch":
            return FETCH_SHARE * min(max(self.share, 0.0), 1.0)
        return FETCH_SHARE + (1.0 - FETCH_SHARE) * self._progress

    @property
    def _progress(self) -> float:
        """Tells how far it is with a video that is there."""
        begin, end = SHARES[self.stage]
        staged = begin + (end - begin) * min(max(self.share, 0.0), 1.0)
        if self.film is None:
            return staged
        rest = 1.0 - SEGMENTS_SHARE if self.film >= 1.0 else 0.0
        return SEGMENTS_SHARE * min(self.film, 1.0) + rest * staged

    @property
    def video(self) -> Footage | bytes:
        """Returns what it is captioned from: its frames, or its packed streams. It has been read."""
        if self.features is not None:
            return self.features.streams
        if self.shared is not None:
            return self.shared
        assert self.decoded is not None
        return self.decoded.footage

    @property
    def has_video(self) -> bool:
        return self.features is not None or self.shared is not None or self.decoded is not None

    def share_frames(self) -> None:
        """Moves the frames that were decoded into shared memory, which the engine maps."""
        assert self.decoded is not None
        self.shared, self.decoded = share_footage(self.decoded.footage), None

    def forget_frames(self) -> None:
        """Gives back the memory of its frames."""
        if self.shared is not None:
            self.shared.close()
        self.shared = self.decoded = None

    @property
    def is_kept(self) -> bool:
        """Whether its streams are to be kept: they are not yet, and are not of a film's segments."""
        return self.feature_key is not None and self.features is None and self.film is None

    def set_stage(self, stage: Stage, share: float = 0.0) -> None:
        self.stage, self.share = stage, share
        is_new = not self.marks or self.marks[-1][0] != stage
        if is_new and len(self.marks) < MOST_MARKS:
            self.marks.append((stage, time.time()))

    def resume(self) -> None:
        self._clock = (self._clock[0], time.monotonic())

    def pause(self) -> None:
        self._clock = (self.elapsed, None)

    def restart_clock(self) -> None:
        """Gives the job its whole time again: a segment of its film is done."""
        self._clock = (0.0, time.monotonic())

    @property
    def elapsed(self) -> float:
        """Seconds of the job's time that are used up; waiting for others' turns takes none of it."""
        spent, since = self._clock
        return spent + (0.0 if since is None else time.monotonic() - since)

    def begin_again(self, claim: Claim) -> None:
        """Starts another attempt, with what the last one decoded, that shares no batch."""
        self.claim, self.share, self.has_gained = claim, 0.0, False
        self._clock = (0.0, None)
        self.is_alone = True

    def record(self, answer: Answer | None = None) -> dict[str, Any]:
        """Makes the record's answer: of what is known so far, or of ``answer``."""
        kept = {} if self.kept is None else {"segments": self.kept.as_record()}
        record = {**(answer or self.answer).as_record(), **kept}
        if self.fetched is not None:
            record["timings"] = {**record.get("timings", {}), "fetch": self.fetched}
        return record
