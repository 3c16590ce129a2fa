"""Holds how far an attempt at a job is, from the claim to its end.

nothing → Clip        a video that is captioned as a whole
        ↘ Film        one that is cut: its segments, then the Clip that sums it up
        ↘ Estimated   one that is looked at only
"""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from app.documents.job import Answer, Timings
from app.documents.segments import on_other_clock
from app.errors import JobFailure
from app.jobs.job import JobLimits, Stage
from app.jobs.job_store import Claim
from app.jobs.keeping.kept_segments import KeptSegments, kept_by
from app.jobs.options import CaptionOptions
from app.pipeline.engine_protocol import EngineAnswer
from app.segments.summary import SummaryClip
from app.worker.engine.shared_frames import SharedFootage
from extractors.errors import ReelwordError
from extractors.features import Footage
from extractors.media.request import Limits
from models.caption import AttentionDocument

Stop = Literal["canceled", "lost", "deadline", "handed back", "gave way"]

#: Where each stage begins and ends in the progress of the whole job.
SHARES: Mapping[Stage, tuple[float, float]] = {
    "fetch": (0.0, 0.0),
    "decode": (0.0, 0.4),
    "extract": (0.4, 0.8),
    "caption": (0.8, 1.0),
}

SEGMENTS_SHARE = 0.95  #: of the progress of a film that is cut: its segments. What is left is its summary

FETCH_SHARE = 0.3  #: of the progress of a job whose video is fetched: that
MOST_MARKS = 90  #: stages of a turn whose beginnings are kept: a film has three for each segment
NO_FACTS = Answer()  #: of a video that has not been read


@dataclass(frozen=True, eq=False)
class Clip:
    """Holds what a caption is written of."""

    options: CaptionOptions  #: the job's, with who writes and how the video is cut filled in
    facts: Answer  #: what is known of the file
    video: Footage | bytes  #: its frames, in memory that the engine maps; or packed streams from the cache
    stills: tuple[bytes, ...]  #: JPEG files of the frames that the captioner sees
    feature_key: tuple[str, str] | None = None  #: what names its features in the cache, where it has them
    reply: EngineAnswer | JobFailure | None = None  #: what the engine says of it, once it has

    @property
    def is_cached(self) -> bool:
        """Returns whether its features come from the cache, and no frame was read."""
        return isinstance(self.video, bytes)

    def close(self) -> None:
        """Gives back the memory of its frames."""
        if isinstance(self.video, SharedFootage):
            self.video.close()


@dataclass(frozen=True, eq=False)
class Estimated:
    """Holds what is known of a video that is looked at only."""

    options: CaptionOptions
    facts: Answer  #: with the estimate of what its caption costs


@dataclass(eq=False)
class Film:
    """Holds how far a film is that is cut into segments."""

    options: CaptionOptions  #: the job's, with who writes and how the film is cut filled in
    facts: Answer = NO_FACTS  #: what is known of the file
    share: float = 0.0  #: of the film that is captioned
    has_gained: bool = False  #: whether this attempt has finished a segment
    gives_way: bool = False  #: whether it goes back behind what waits
    clip: Clip | None = None  #: what sums the film up, once all of it is captioned
    summary: SummaryClip | None = None  #: its moments in the film; None where the clip is all of the film

    def answer_of(self, summary: EngineAnswer) -> EngineAnswer:
        """Makes the film's answer of what the engine says of the clip that sums it up: on the film's clock,
        and with the seconds that segments took.
        """
        attention = summary.attention
        if attention is not None and self.summary is not None:
            document = AttentionDocument.model_validate_json(attention)
            attention = on_other_clock(document, self.summary.film_time).model_dump_json()
        before, last = self.facts.timings or Timings(), summary.answer.timings or Timings()
        seconds = Timings(
            extract=round((before.extract or 0.0) + (last.extract or 0.0), 4),
            caption=round((before.caption or 0.0) + (last.caption or 0.0), 4),
        )
        return EngineAnswer(summary.answer.model_copy(update={"timings": seconds}), attention)


Contents: TypeAlias = Clip | Estimated | Film | None


class JobClock:
    """Counts the seconds of a job's time that are used up; waiting for others' turns takes none of it."""

    def __init__(self) -> None:
        self._state: tuple[float, float | None] = (0.0, None)  # used up, and since when it runs: one value

    def resume(self) -> None:
        self._state = (self._state[0], time.monotonic())

    def pause(self) -> None:
        self._state = (self.seconds, None)

    def restart(self) -> None:
        """Gives the job its whole time again: a segment of its film is done."""
        self._state = (0.0, time.monotonic())

    @property
    def seconds(self) -> float:
        spent, since = self._state
        return spent + (0.0 if since is None else time.monotonic() - since)


@dataclass(eq=False)
class Turn:
    """Holds when a worker's turn at a job, all its attempts, came to what, in seconds since 1970."""

    first_attempt: int  #: the number of the attempt that it began with
    began_at: float = field(default_factory=time.time)
    ended_at: float | None = None  #: when the job's end, or its return to the queue, was on the record
    marks: list[tuple[Stage, float]] = field(default_factory=list)  #: when each stage began, as far as kept

    def mark(self, stage: Stage) -> None:
        """Notes that a stage begins, unless it is under way."""
        is_new = not self.marks or self.marks[-1][0] != stage
        if is_new and len(self.marks) < MOST_MARKS:
            self.marks.append((stage, time.time()))


@dataclass(eq=False)
class Attempt:
    """Holds how far an attempt at a job is. The thread that has it moves it on; the watchdog may stop it."""

    claim: Claim
    is_last: bool = False  #: its worker holds no other job meanwhile: those of the other attempts fell silent
    is_alone: bool = False  #: it shares no batch: something died of it, or of one that it shared a batch with
    stage: Stage = "decode"
    share: float = 0.0  #: of the stage that is done
    contents: Contents = None  #: what is known of the video
    kept: KeptSegments | None = None  #: its finished segments, those of an earlier attempt at first
    fetched: float | None = None  #: seconds that fetching the video took; None where it was uploaded
    is_at_work: bool = False  #: whether a child works on it; else it waits for one
    stopped: Stop | None = None  #: why it is not to continue
    error: ReelwordError | None = None  #: why the job has failed
    clock: JobClock = field(default_factory=JobClock)
    turn: Turn = field(init=False)

    def __post_init__(self) -> None:
        self.kept = kept_by(self.claim.job.answer)
        self.turn = Turn(self.claim.job.attempt)

    @property
    def owner(self) -> str:
        """Returns the id of the key that sent the job; empty where none did."""
        return self.claim.job.submission.owner or ""

    @property
    def is_settled(self) -> bool:
        """Returns whether its end, or its return to the queue, is on the record."""
        return self.turn.ended_at is not None

    def settle(self) -> None:
        """Notes that its end, or its return to the queue, is on the record."""
        self.turn.ended_at = self.turn.ended_at or time.time()

    @property
    def facts(self) -> Answer:
        """Returns what is known of the video so far."""
        return NO_FACTS if self.contents is None else self.contents.facts

    @property
    def film(self) -> Film | None:
        return self.contents if isinstance(self.contents, Film) else None

    @property
    def clip(self) -> Clip:
        """Returns what it is captioned from. It has been read."""
        clip = self.contents.clip if isinstance(self.contents, Film) else self.contents
        assert isinstance(clip, Clip)
        return clip

    @property
    def progress(self) -> float:
        if self.claim.job.submission.source_url is None:
            return self._progress
        if self.stage == "fetch":
            return FETCH_SHARE * min(max(self.share, 0.0), 1.0)
        return FETCH_SHARE + (1.0 - FETCH_SHARE) * self._progress

    @property
    def _progress(self) -> float:
        """Returns how far it is with a video that is there."""
        begin, end = SHARES[self.stage]
        staged = begin + (end - begin) * min(max(self.share, 0.0), 1.0)
        if self.film is None:
            return staged
        rest = 1.0 - SEGMENTS_SHARE if self.film.share >= 1.0 else 0.0
        return SEGMENTS_SHARE * min(self.film.share, 1.0) + rest * staged

    def set_stage(self, stage: Stage, share: float = 0.0) -> None:
        self.stage, self.share = stage, share
        self.turn.mark(stage)

    def close(self) -> None:
        """Gives back the memory of its frames."""
        if isinstance(self.contents, Clip):
            self.contents.close()
        self.contents = None

    def begin_again(self, claim: Claim) -> None:
        """Starts another attempt, with what the last one read, that shares no batch."""
        self.claim, self.share, self.is_alone, self.clock = claim, 0.0, True, JobClock()
        if self.film is not None:
            self.film.has_gained = False

    def limits_within(self, limits: Limits) -> Limits:
        """Lowers a worker's limits of decoding to those that the job has by its sender's key."""
        job_limits = self.claim.job.submission.limits or JobLimits()
        return replace(
            limits,
            max_duration=min(limits.max_duration, job_limits.seconds or math.inf),
            pixels=min(limits.pixels, job_limits.pixels or limits.pixels),
        )

    def record(self, answer: Answer | None = None) -> dict[str, Any]:
        """Makes the record's answer: of what is known so far, or of ``answer``."""
        kept = {} if self.kept is None else {"segments": vars(self.kept)}
        record = {**(answer or self.facts).as_record(), **kept}
        if self.fetched is not None:
            record["timings"] = {**record.get("timings", {}), "fetch": self.fetched}
        return record
