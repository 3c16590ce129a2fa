"""Renews leases, enforces deadlines and cancellation, publishes the worker's status.

A background thread of the worker. It ends jobs that are canceled, lost or out of time, and kills a child that
works on nothing else. Only children run native code, so nothing can hold this thread up but Redis, and
for that it has a connection with little patience.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import structlog

from app.errors import QueueUnavailable
from app.jobs.job_store import Jobs
from app.settings import Settings
from app.worker.attempt import Attempt

ADVERTISE_SECONDS = 2.0
log = structlog.get_logger(__name__)


@dataclass(eq=False)
class _GuardedChild:
    """Holds what a child works on, and how it is killed. kill_at: when, once all of its runs are stopped."""

    runs: Sequence[Attempt]
    kill: Callable[[], None]
    grace: float
    kill_at: float | None = None
    is_killed: bool = False

    def kill_once(self) -> None:
        if not self.is_killed:
            self.kill()
            self.is_killed = True

    def kill_if_for_nobody(self) -> None:
        """Kills a child whose runs are all stopped; one with canceled jobs has its grace to end by itself."""
        if not all(run.stopped for run in self.runs):
            return
        if self.kill_at is None:
            is_cancel = all(run.stopped == "canceled" for run in self.runs)
            self.kill_at = time.monotonic() + (self.grace if is_cancel else 0.0)
        if time.monotonic() >= self.kill_at:
            self.kill_once()

    def check_time(self, seconds: float) -> None:
        late = [run for run in self.runs if run.elapsed > seconds]
        if late and len(self.runs) > 1:  # one of them hangs; which one shows when each runs alone
            self.kill_once()
            return
        for run in late:
            run.stopped = run.stopped or "deadline"


class Watchdog:
    """Renews the leases of attempts in hand, and can kill the children that work on those that it guards.

    Args:
        jobs: the records, on a connection of its own.
        settings: times of leases, beats and jobs.
        advertise: is called every two seconds.
        show_life: is called at each beat, also while Redis is away.
    """

    def __init__(
        self,
        jobs: Jobs,
        settings: Settings,
        advertise: Callable[[], None],
        show_life: Callable[[], None] = lambda: None,
    ) -> None:
        self._jobs, self._settings = jobs, settings
        self._advertise, self._show_life = advertise, show_life
        self._guard = threading.RLock()
        self._held: list[Attempt] = []
        self._children: list[_GuardedChild] = []
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

    def hold(self, run: Attempt) -> None:
        """Renews the lease of ``run`` from now on."""
        with self._guard:
            self._held = [*self._held, run]

    @contextmanager
    def guard(self, runs: Sequence[Attempt], kill: Callable[[], None], grace: float = 0.0) -> Iterator[None]:
        """Limits the time of ``runs`` while a child works on them, and kills it when all of them are stopped.

        Args:
            runs: what the child works on; no other child does.
            kill: ends the child at once.
            grace: seconds that a child with canceled jobs may take to end by itself; a new one is dear.
        """
        child = _GuardedChild(list(runs), kill, grace)
        with self._guard:
            self._children = [*self._children, child]
            for run in runs:
                run.resume()
        try:
            yield
        finally:
            with self._guard:
                self._children = [other for other in self._children if other is not child]
                for run in runs:
                    run.pause()

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Sends no beat meanwhile: for changing a run's claim, or ending it."""
        with self._guard:
            yield

    def stop_all(self) -> None:
        """Has all runs in hand go back to the queue, and ends the children that work on them at once."""
        with self._guard:
            for run in self._held:
                run.stopped = run.stopped or "handed back"
            for child in self._children:
                child.kill_if_for_nobody()

    def release(self, run: Attempt) -> None:
        """Ends the beats of a run that has ended, or is about to."""
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
                self._show_life()
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
            for child in self._children:
                child.check_time(self._settings.job_seconds)
            self._check_leaving()
            for child in self._children:
                child.kill_if_for_nobody()
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

    def _check_leaving(self) -> None:
        if self._leave_at is not None and time.monotonic() >= self._leave_at:
            for run in self._held:
                run.stopped = run.stopped or "handed back"
