"""Runs claimed jobs to their end: decoders read ahead while the engine captions what is there.

    fetch those with an address → decode each → caption together what is ready → finish each
                                                   ↓ the engine died
                                             each again, alone

A film that is to be cut into segments takes minutes or hours: it comes after the clips that were taken with
it, clips are captioned between its segments, and after half a minute it goes back behind what waits.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Self

import structlog

from app.errors import JobFailure
from app.jobs.blobs import Blobs
from app.jobs.job import Stage
from app.jobs.job_store import Claim, Jobs
from app.jobs.queue import waiting
from app.pipeline.engine_protocol import EngineAnswer, EngineInfo
from app.settings import Settings
from app.tracing.spans import Tracing
from app.worker.attempt import Attempt, Film
from app.worker.engine.process import EngineDied, EngineProcess, EngineRaised
from app.worker.feature_reuse import FeatureReuse
from app.worker.job_ends import JobEnds, spans_of
from app.worker.jobs_in_hand import JobsInHand, Place
from app.worker.reading.film_segments import FilmSegments
from app.worker.reading.read_ahead import ReadAhead, VideoReader, engine_failure, move_on, read_until_it_works
from app.worker.reading.url_fetches import UrlFetches
from app.worker.watchdog import Watchdog
from extractors.decoder.decoder import Decoder
from extractors.media.request import Limits

ENDING_SECONDS = 60.0  #: that other threads have to let go of what is handed back
log = structlog.get_logger(__name__)


@dataclass(eq=False)
class JobRunner:
    """Runs jobs with several decoders and one engine. The thread that calls ``turn`` has the engine."""

    jobs: Jobs  #: the records
    blobs: Blobs  #: where uploads and results lie
    decoders: Sequence[Decoder]  #: read the videos, each in a thread of its own
    engine: EngineProcess  #: captions them
    watch: Watchdog  #: keeps the leases meanwhile
    settings: Settings  #: limits of time and memory
    tracing: Tracing = field(default_factory=Tracing)  #: is told of each job's turn

    def __post_init__(self) -> None:
        self._info: EngineInfo | None = None
        self._is_leaving = False
        self._taken: list[Attempt] = []  # in this turn
        self.hand = JobsInHand(self.settings.read_ahead_bytes, self._let_go)
        reuse = FeatureReuse(self.settings, self.blobs)
        limits = Limits(seconds=self.settings.decode_seconds, memory=self.settings.decode_memory)
        keeps_uploads = self.settings.upload_seconds > 0
        self._ends = JobEnds(
            self.jobs, self.blobs, self.watch, self.settings.job_seconds, keeps_uploads, reuse
        )
        readers = [
            VideoReader(
                decoder, self.blobs, self.watch, self._ends, reuse, self.hand, self._known_engine, limits
            )
            for decoder in self.decoders
        ]
        self._ahead = ReadAhead(
            self.hand, readers, UrlFetches(self.blobs, self.watch, self.settings), self._ends
        )
        self._films = FilmSegments(
            self.blobs, self.engine, self.watch, self.settings, limits, self._serve_clips
        )
        self._finishing = threading.Thread(target=self._finish_all, name="finish", daemon=True)

    def __enter__(self) -> Self:
        self._ahead.start()
        self._finishing.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.hand.close()
        self._ahead.join()
        self._finishing.join()

    def start(self) -> None:
        """Has the engine ready, and each decoder its child. Raises EngineStartFailed."""
        self._info = self.engine.start()
        self._ahead.wait_until_started()

    def leave(self) -> None:
        """Starts no engine any more. For signal handlers: takes no lock."""
        self._is_leaving = True

    @property
    def has_unmeasured(self) -> bool:
        """Returns whether the engine has captioners whose seconds are not known yet."""
        info = self.engine.info
        return info is not None and bool(info.unmeasured)

    def _known_engine(self) -> EngineInfo:
        """Returns what the engine can do, also while it is started anew."""
        assert self._info is not None
        return self._info

    def begin(self, claim: Claim, *, is_last: bool = False) -> None:
        """Takes a claimed job in hand, in ``is_last`` with no other beside it; any thread may."""
        attempt = Attempt(claim, is_last=is_last)
        self.watch.hold(attempt)
        self._ahead.begin(attempt)

    def turn(self, patience: float) -> bool:
        """Captions what is ready, together; returns whether there was anything within ``patience`` seconds.

        Raises QueueUnavailable where Redis stays away: the jobs run again once their leases lapse.
        EngineStartFailed and any other error are raised once the jobs are handed back.
        """
        self._taken = []
        if self._is_leaving and not self.engine.is_ready:
            self.hand_back_all()
            self.hand.wait_for_move(self.hand.moves, patience)  # for what is being claimed at the moment
            return True
        try:
            self._info = self.engine.start()
            self._taken = self.hand.take_batch(self.settings.batch_jobs, patience)
            batch = self._runnable(self._taken)
            if batch and batch[0].film is not None:
                self._caption_film(batch[0], batch[0].film)
            elif batch:
                self._caption(batch)
        except Exception:
            self.hand_back_all()
            raise
        return bool(self._taken)

    def hand_back_all(self) -> None:
        """Leaves no job in a worker that cannot continue. Raises QueueUnavailable."""
        self.watch.stop_all()
        mine = [*self._taken, *self.hand.take_all()]
        try:
            for attempt in mine:
                self._ends.hand_back(attempt)
        finally:
            for attempt in mine:
                self.hand.drop(attempt)
            self.hand.wait_until_empty(ENDING_SECONDS)

    def _runnable(self, taken: Sequence[Attempt]) -> list[Attempt]:
        """Returns those that the engine can have: a stopped one ends, one that is not read is put there."""
        runnable = []
        for attempt in taken:
            if self._ends.settle_if_stopped(attempt):
                self.hand.drop(attempt)
            elif attempt.contents is None:
                self.hand.put(attempt, "read")
            else:
                runnable.append(attempt)
        return runnable

    def _caption(self, batch: Sequence[Attempt]) -> None:
        """Captions a batch and passes it on; what died of it is run again, each job alone."""
        answers = self._ask(batch)
        if isinstance(answers, JobFailure):
            for attempt in batch:
                if self._ends.again(attempt, answers, was_shared=len(batch) > 1):
                    self.hand.put(attempt, "caption")
                else:
                    self.hand.drop(attempt)
            return
        for attempt, answer in zip(batch, answers, strict=True):
            attempt.contents = replace(attempt.clip, reply=answer)
            self.hand.put(attempt, "finish")

    def _ask(self, batch: Sequence[Attempt]) -> Sequence[EngineAnswer | JobFailure] | JobFailure:
        """Has the engine caption a batch; returns the answer to each, or what has gone wrong with all."""

        def report(stage: Stage, share: float, text: str = "") -> None:
            for attempt in batch:
                attempt.set_stage(stage, share)
            if text and len(batch) == 1:
                self.watch.beat(batch[0], text)

        self.engine.start()
        report("extract", 0.0)
        clips = [attempt.clip for attempt in batch]
        videos, options = [clip.video for clip in clips], [clip.options for clip in clips]
        keep = [place for place, clip in enumerate(clips) if clip.feature_key and not clip.is_cached]
        try:
            engine, grace = self.engine, self.settings.cancel_grace
            with self.watch.guard(batch, engine.kill, engine.interrupt, grace):
                return self.engine.run(videos, options, report, keep)
        except EngineDied as death:
            if not all(attempt.stopped for attempt in batch):  # by whom it is ended
                log.warning("engine died", jobs=[attempt.claim.job.id for attempt in batch], how=str(death))
            return engine_failure(death)
        except EngineRaised as fault:
            return engine_failure(fault)

    def _finish_all(self) -> None:
        """Keeps results while the engine works on: the store may be far away."""
        while (attempt := self.hand.take("finish")) is not None:
            move_on(attempt, self._finish, self.hand)

    def _finish(self, attempt: Attempt) -> Place | None:
        assert attempt.clip.reply is not None
        return None if self._ends.finish(attempt, attempt.clip.reply) else "caption"

    def _caption_film(self, attempt: Attempt, film: Film) -> None:
        """Captions a film's segments, then what sums it up; an attempt that fails leaves its segments.

        Between its segments clips are captioned. Other films go back, for workers that are idle.
        """
        self._return_films()
        read = partial(self._read_film, film)
        while read_until_it_works(attempt, read, self._ends) and not self._ends.settle_if_stopped(attempt):
            answers = self._ask([attempt])
            if isinstance(answers, JobFailure):
                is_over = not self._ends.again(attempt, answers)
            else:
                is_over = self._ends.finish(attempt, answers[0])
            if is_over:
                break
        self.hand.drop(attempt)

    def _read_film(self, film: Film, attempt: Attempt) -> None:
        """Captions the film's segments, and reads what sums it up."""
        self.engine.start()
        attempt.set_stage("decode")
        with self.blobs.local(attempt.claim.job.upload) as path:
            self._films.caption(attempt, film, path)
        if film.gives_way:
            attempt.stopped = attempt.stopped or "gave way"

    def _serve_clips(self, attempt: Attempt) -> bool:
        """Captions clips that are ready, in none of a film's time; returns whether anything is queued."""
        attempt.clock.pause()
        self._return_films()
        clips = self.hand.take_ready(self.settings.batch_jobs, attempt)
        self._taken = [attempt, *clips]
        if batch := self._runnable(clips):
            self._caption(batch)
            self.engine.start()  # a clip may have ended it
        attempt.clock.resume()
        return waiting(self.jobs.server, self.jobs.keys) > 0

    def _return_films(self) -> None:
        """Puts films that wait in hand behind what waits in the queue."""
        for other in self.hand.take_films():
            other.stopped = other.stopped or "gave way"
            self._ends.settle_if_stopped(other)
            self.hand.drop(other)

    def _let_go(self, attempt: Attempt) -> None:
        """Ends the beats of a job that is out of hand, and tells of its turn."""
        self.watch.release(attempt)
        if self.tracing.is_on:
            self.tracing.record(attempt.claim.job.submission.traceparent, spans_of(attempt))
        attempt.close()
