"""Renews leases, enforces deadlines and cancellation, publishes the worker's status.

A background thread of the worker. It ends jobs that are canceled, lost or out of time, and kills the child
that works on nothing else. Only children run native code, so nothing can hold this thread up but Redis, and
for that it has a connection with little patience.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import structlog

from app.documents.job import Answer
from app.errors import QueueUnavailable
from app.feature_cache.kept_features import KeptFeatures
from app.jobs.job import Stage
from app.jobs.job_store import Claim, Jobs
from app.jobs.kept_segments import KeptSegments, kept_by
from app.jobs.options import CaptionOptions
from app.segments.summary import SummaryClip
from app.settings import Settings
from extractors.errors import ReelwordError
from extractors.features import Footage
from extractors.media.request import Decoded

ADVERTISE_SECONDS = 2.0
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

log = structlog.get_logger(__name__)


@dataclass(eq=False)
class Attempt:
    """Holds how far an attempt at a job is. The main thread moves it on; the watchdog may stop it.

    options: the job's, who writes filled in. answer: what is known so far; reported: as much of it as is on
    the record. ended_at: when its end, or its return to the queue, was there too. spent: seconds of the job's
    time used up; others' turns do not count. film: of one that is cut into segments, the share of it that is
    captioned; else None. clip: what sums it up, once all of it is. kept: its finished segments, those of an
    earlier attempt at first. has_gained: whether this attempt has finished one of them. fetched: seconds that
    fetching the video took; None where it was uploaded. error: why the job has failed. marks: when each stage
    began, in seconds since 1970, as far as there is room. first_attempt: which one this turn began with.
    feature_key: digest of its file, and what else names its features in the cache. features: found there, in
    place of ``decoded``.
    """

    claim: Claim
    stage: Stage = "decode"
    share: float = 0.0
    options: CaptionOptions | None = None
    answer: Answer = field(default_factory=Answer)
    reported: tuple[Answer | None, KeptSegments | None] = (None, None)
    decoded: Decoded | None = None
    stopped: Stop | None = None
    spent: float = 0.0
    film: float | None = None
    clip: SummaryClip | None = None
    kept: KeptSegments | None = None
    feature_key: tuple[str, str] | None = None
    features: KeptFeatures | None = None
    has_gained: bool = False
    fetched: float | None = None
    error: ReelwordError | None = None
    began_at: float = field(default_factory=time.time)
    ended_at: float | None = None
    marks: list[tuple[Stage, float]] = field(default_factory=list)
    first_attempt: int = field(init=False)
    _since: float | None = None

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
        assert self.decoded is not None
        return self.decoded.footage

    @property
    def has_video(self) -> bool:
        return self.features is not None or self.decoded is not None

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
        self._since = time.monotonic()

    def pause(self) -> None:
        self.spent, self._since = self.elapsed, None

    def restart_clock(self) -> None:
        """Gives the job its whole time again: a segment of its film is done."""
        self.spent, self._since = 0.0, time.monotonic()

    @property
    def elapsed(self) -> float:
        return self.spent + (0.0 if self._since is None else time.monotonic() - self._since)

    def begin_again(self, claim: Claim) -> None:
        """Starts another attempt, with what the last one decoded."""
        self.claim, self.spent, self.share, self.has_gained = claim, 0.0, 0.0, False

    def record(self, answer: Answer | None = None) -> dict[str, Any]:
        """Makes the record's answer: of what is known so far, or of ``answer``."""
        kept = {} if self.kept is None else {"segments": self.kept.as_record()}
        record = {**(answer or self.answer).as_record(), **kept}
        if self.fetched is not None:
            record["timings"] = {**record.get("timings", {}), "fetch": self.fetched}
        return record


class Watchdog:
    """Renews the leases of attempts in hand, and can kill the child that works on those that it guards.

    Args:
        jobs: the records, on a connection of its own.
        settings: times of leases, beats and jobs.
        advertise: is called every two seconds.
    """

    def __init__(self, jobs: Jobs, settings: Settings, advertise: Callable[[], None]) -> None:
        self._jobs, self._settings, self._advertise = jobs, settings, advertise
        self._guard = threading.RLock()
        self._held: list[Attempt] = []
        self._current: list[Attempt] = []
        self._kill: Callable[[], None] | None = None
        self._grace = 0.0
        self._kill_at: float | None = None
        self._leave_at: float | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watch", daemon=True)

    def __enter__(self) -> Watchdog:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        self._thread.join()

    def leave(self, within: float) -> None:
        """Hands back what is still in hand after ``within`` seconds. For signal handlers: takes no lock."""
        if self._leave_at is None:
            self._leave_at = time.monotonic() + within

    @contextmanager
    def hold(self, runs: Sequence[Attempt]) -> Iterator[None]:
        """Renews the leases of ``runs`` meanwhile."""
        with self._guard:
            self._held = list(runs)
        try:
            yield
        finally:
            with self._guard:
                self._held = []

    @contextmanager
    def guard(self, runs: Sequence[Attempt], kill: Callable[[], None], grace: float = 0.0) -> Iterator[None]:
        """Limits the time of ``runs`` while a child works on them, and kills it when all of them are stopped.

        Args:
            runs: what the child works on.
            kill: ends the child at once.
            grace: seconds that a child with canceled jobs may take to end by itself; a new one is dear.
        """
        with self._guard:
            self._current, self._kill, self._grace, self._kill_at = list(runs), kill, grace, None
            for run in runs:
                run.resume()
        try:
            yield
        finally:
            with self._guard:
                self._current, self._kill = [], None
                for run in runs:
                    run.pause()

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Sends no beat meanwhile: for changing a run's claim, or ending it."""
        with self._guard:
            yield

    def release(self, run: Attempt) -> None:
        """Ends the beats of a run that is about to end."""
        with self._guard:
            self._held = [held for held in self._held if held is not run]

    def beat(self, run: Attempt) -> None:
        """Tells the record at once how far a run is, rather than with the next beat, where Redis answers."""
        with self._guard:
            try:
                if not run.stopped:
                    self._beat(run)
            except QueueUnavailable as error:
                log.warning("no beat: redis is away", reason=str(error))

    def _watch(self) -> None:
        advertised = -ADVERTISE_SECONDS
        while not self._over.wait(self._settings.beat_seconds):
            try:
                self._tick()
                if time.monotonic() - advertised >= ADVERTISE_SECONDS:
                    self._advertise()
                    advertised = time.monotonic()
            except QueueUnavailable as error:
                log.warning("no beat: redis is away", reason=str(error))
            except Exception:
                log.exception("the watch stumbled and goes on")

    def _tick(self) -> None:
        with self._guard:
            self._check_time()
            self._check_leaving()
            self._kill_what_works_for_nobody()
            for run in [run for run in self._held if not run.stopped]:
                self._beat(run)

    def _beat(self, run: Attempt) -> None:
        known = (run.answer, run.kept)
        news = None if known[0] is run.reported[0] and known[1] is run.reported[1] else run.record()
        pulse = self._jobs.beat(run.claim, run.stage, run.progress, news, has_gained=run.has_gained)
        if pulse == "go":
            run.reported = known
            return
        run.stopped = pulse
        log.info("job stopped", job=run.claim.job.id, why=pulse, stage=run.stage)
        if pulse == "canceled":  # said at once: the child may take its grace to end
            self._jobs.stop(run.claim)

    def _check_time(self) -> None:
        late = [run for run in self._current if run.elapsed > self._settings.job_seconds]
        if late and len(self._current) > 1:  # one of them hangs; which one shows when each runs alone
            self._kill_current()
            return
        for run in late:
            run.stopped = run.stopped or "deadline"

    def _check_leaving(self) -> None:
        if self._leave_at is not None and time.monotonic() >= self._leave_at:
            for run in self._held:
                run.stopped = run.stopped or "handed back"

    def _kill_what_works_for_nobody(self) -> None:
        if not self._current or not all(run.stopped for run in self._current):
            return
        if self._kill_at is None:
            is_cancel = all(run.stopped == "canceled" for run in self._current)
            self._kill_at = time.monotonic() + (self._grace if is_cancel else 0.0)
        if time.monotonic() >= self._kill_at:
            self._kill_current()

    def _kill_current(self) -> None:
        if self._kill is not None:
            self._kill()
            self._kill = None
