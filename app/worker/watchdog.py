"""Renews leases, enforces deadlines and cancellation, publishes the worker's status.

A background thread of the worker. It ends jobs that are canceled, lost or out of time, and kills a child that
works on nothing else. Only children run native code, so nothing can hold this thread up but Redis, and
for that it has a connection with short timeouts.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

import structlog

from app.documents.job import Answer
from app.errors import QueueUnavailable
from app.jobs.job_store import Jobs
from app.jobs.keeping.kept_segments import KeptSegments
from app.settings import Settings
from app.worker.attempt import NO_FACTS, Attempt

ADVERTISE_SECONDS = 2.0
log = structlog.get_logger(__name__)


@dataclass(eq=False)
class _GuardedChild:
    """Holds what a child works on, and how it is killed."""

    attempts: Sequence[Attempt]
    kill: Callable[[], object]
    interrupt: Callable[[], None] | None  #: has it leave what it does where its jobs are canceled
    grace: float  #: seconds that this may take
    kill_at: float | None = None  #: when it is killed, once all of its attempts are stopped
    is_killed: bool = False

    def kill_once(self) -> None:
        if not self.is_killed:
            self.kill()
            self.is_killed = True

    def kill_if_all_stopped(self) -> None:
        """Kills a child whose attempts are all stopped.

        Where they are canceled it is asked to leave them, and killed if that takes longer than its grace.
        """
        if not all(attempt.stopped for attempt in self.attempts):
            return
        if self.kill_at is None:
            is_cancel = all(attempt.stopped == "canceled" for attempt in self.attempts)
            self.kill_at = time.monotonic() + (self.grace if is_cancel else 0.0)
            if is_cancel and self.interrupt is not None:
                self.interrupt()
        if time.monotonic() >= self.kill_at:
            self.kill_once()

    def check_time(self, seconds: float) -> None:
        late = [attempt for attempt in self.attempts if attempt.clock.seconds > seconds]
        if late and len(self.attempts) > 1:  # one of them hangs; which one shows when each goes alone
            self.kill_once()
            return
        for attempt in late:
            attempt.stopped = attempt.stopped or "deadline"


@dataclass(eq=False)
class Watchdog:
    """Renews the leases of attempts in hand, and can kill the children that work on those that it guards."""

    jobs: Jobs  #: the records, on a connection of its own
    settings: Settings  #: times of leases, beats and jobs
    advertise: Callable[[], None]  #: is called every two seconds
    show_life: Callable[[], None] = lambda: None  #: is called at each beat, also while Redis is away

    def __post_init__(self) -> None:
        self._guard = threading.RLock()
        self._held: dict[Attempt, tuple[Answer, KeptSegments | None]] = {}  # and what the record has of it
        self._children: list[_GuardedChild] = []
        self._leave_at: float | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        self._thread.join()

    def leave(self, within: float) -> None:
        """Hands back what is still in hand after ``within`` seconds. For signal handlers: takes no lock."""
        if self._leave_at is None:
            self._leave_at = time.monotonic() + within

    def hold(self, attempt: Attempt) -> None:
        """Renews the lease of ``attempt`` from now on."""
        with self._guard:
            self._held = {**self._held, attempt: (NO_FACTS, None)}

    @contextmanager
    def guard(
        self,
        attempts: Sequence[Attempt],
        kill: Callable[[], object],
        interrupt: Callable[[], None] | None = None,
        grace: float = 0.0,
    ) -> Iterator[None]:
        """Limits the time of attempts while a child works on them, and kills it when all of them are stopped.

        Args:
            attempts: what the child works on; no other child does.
            kill: ends the child at once.
            interrupt: has the child leave canceled jobs and stay, since a new one starts slowly.
            grace: seconds that this may take; it is killed then.
        """
        child = _GuardedChild(list(attempts), kill, interrupt, grace)
        with self._guard:
            self._children = [*self._children, child]
            for attempt in attempts:
                attempt.clock.resume()
                attempt.is_at_work = True
                self.beat(attempt)  # before anything that may kill this worker
        try:
            yield
        finally:
            with self._guard:
                self._children = [other for other in self._children if other is not child]
                for attempt in attempts:
                    attempt.clock.pause()
                    attempt.is_at_work = False
                    self.beat(attempt)  # or a worker that dies before the next one costs it an attempt

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Sends no beat meanwhile: for changing an attempt's claim, or ending it."""
        with self._guard:
            yield

    def stop_all(self) -> None:
        """Has all attempts in hand go back to the queue, and ends the children that work on them at once."""
        with self._guard:
            for attempt in self._held:
                attempt.stopped = attempt.stopped or "handed back"
            for child in self._children:
                child.kill_if_all_stopped()

    def release(self, attempt: Attempt) -> None:
        """Ends the beats of an attempt that has ended, or is about to."""
        with self._guard:
            self._held = {other: reported for other, reported in self._held.items() if other is not attempt}

    def beat(self, attempt: Attempt, text: str = "") -> None:
        """Records at once, where Redis answers, how far an attempt is and what is written so far."""
        with self._guard:
            try:
                if not attempt.stopped:
                    self._beat(attempt, text)
            except QueueUnavailable as error:
                log.warning("no beat: redis is away", reason=str(error))

    def _watch(self) -> None:
        advertised = -ADVERTISE_SECONDS
        while not self._over.wait(self.settings.beat_seconds):
            try:
                self.show_life()
                self._tick()
                if time.monotonic() - advertised >= ADVERTISE_SECONDS:
                    self.advertise()
                    advertised = time.monotonic()
            except QueueUnavailable as error:
                log.warning("no beat: redis is away", reason=str(error))
            except Exception:
                log.exception("the watchdog met an error and continues")

    def _tick(self) -> None:
        with self._guard:
            # in this order, so that a child is killed in the tick in which its last attempt is stopped
            for child in self._children:
                child.check_time(self.settings.job_seconds)
            if self._leave_at is not None and time.monotonic() >= self._leave_at:
                self.stop_all()
            for child in self._children:
                child.kill_if_all_stopped()
            for attempt in [attempt for attempt in self._held if not attempt.stopped]:
                self._beat(attempt)

    def _beat(self, attempt: Attempt, text: str = "") -> None:
        current, reported = (attempt.facts, attempt.kept), self._held.get(attempt, (NO_FACTS, None))
        # by identity: facts are replaced, never changed, and writing the answer at every beat would be dear
        news = None if current[0] is reported[0] and current[1] is reported[1] else attempt.record()
        has_gained = attempt.film is not None and attempt.film.has_gained
        pulse = self.jobs.beat(
            attempt.claim,
            attempt.stage,
            attempt.progress,
            news,
            has_gained=has_gained,
            is_at_work=attempt.is_at_work,
            text=text,
        )
        if pulse == "go":
            if attempt in self._held:
                self._held[attempt] = current
            return
        attempt.stopped = pulse
        log.info("job stopped", job=attempt.claim.job.id, why=pulse, stage=attempt.stage)
        if pulse == "canceled":  # recorded at once: the child may take its grace to end
            self.jobs.stop(attempt.claim)
