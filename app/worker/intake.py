"""Claims jobs for a worker while it has room for them, in a thread of its own.

An idle worker waits for its next job. One at work takes more to be read ahead, as long as no other worker is
idle: a batch for the engine and one that is being read for it, no more at once than its decoders begin with.
A job whose workers fell silent each time so far is in hand alone in its last attempt.
"""

import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import redis
import structlog

from app.errors import QueueUnavailable, RecordUnreadable, WorkerLost
from app.jobs.blobs import Blobs
from app.jobs.job_store import Claim, Jobs, Refusal
from app.jobs.queue import Offer, Passed, Queue
from app.settings import Settings
from app.worker.job_ends import remove_blob
from app.worker.job_runner import JobRunner

MOST_FETCHES = 16  #: videos that are fetched side by side
FETCHES_OF_ONE = 4  #: the same of one key; jobs without a key share all
SHORTEST_PAUSE, LONGEST_PAUSE = 0.02, 0.5  #: seconds between looks for more while there is work
FULL_PAUSE = 0.1  #: seconds between looks for other owners' jobs while hands are full
#: Seconds without a job before captioners are measured: that may convert networks first, which takes as long,
#: and the first jobs after a start are not to wait for it.
QUIET_SECONDS = 10.0
UNEXPECTED_PAUSE = 0.5  #: seconds before going on after an unexpected answer of Redis
log = structlog.get_logger(__name__)


@dataclass(eq=False)
class Intake:
    """Takes jobs until ``stop``."""

    jobs: Jobs  #: the records
    queue: Queue  #: that of this worker; no other thread uses it meanwhile
    blobs: Blobs  #: where uploads lie; those of jobs that are refused are removed
    runner: JobRunner  #: gets the claims
    settings: Settings  #: how many jobs run together, and how often
    worker: str  #: its name

    def __post_init__(self) -> None:
        self._readers = self.settings.decoder_count
        self._pause = SHORTEST_PAUSE
        self._worked_at = time.monotonic()
        self._is_stopping = False
        self._idle, self._goes_on = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._take_all, name="intake", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Takes no more jobs. For signal handlers: takes no lock."""
        self._is_stopping = True

    @property
    def is_over(self) -> bool:
        """Returns whether nothing more is taken."""
        return not self._thread.is_alive()

    def join(self) -> None:
        """Waits for the last claim; ``stop`` has been called."""
        self._goes_on.set()
        if self._thread.ident is not None:
            self._thread.join()

    @property
    def is_idle(self) -> bool:
        """Returns whether the queue was empty and this worker idle; nothing is taken until ``go_on``."""
        return self._idle.is_set()

    def go_on(self) -> None:
        """Takes jobs again after ``is_idle``."""
        self._idle.clear()
        self._goes_on.set()

    def _take_all(self) -> None:
        while not self._is_stopping:
            try:
                self._take()
            except QueueUnavailable as error:
                log.warning("redis is away", reason=str(error))
                time.sleep(SHORTEST_PAUSE)
            except (redis.RedisError, RecordUnreadable):
                log.exception("redis gave an unexpected answer; the worker continues")
                time.sleep(UNEXPECTED_PAUSE)
            except Exception as error:
                self.runner.hand.fail(error)
                return

    def _take(self) -> None:
        hand = self.runner.hand
        moves, is_idle = hand.moves, len(hand) == hand.count("fetch")
        room = self._room(is_idle)
        if room == 0:
            if not self._squeeze():
                hand.wait_for_move(moves, FULL_PAUSE)
        elif self._begin(self.queue.take(room, is_ahead=not is_idle, without=self._left_out())):
            self._pause, self._worked_at = SHORTEST_PAUSE, time.monotonic()
        elif not is_idle:
            self._worked_at = time.monotonic()
            hand.wait_for_move(moves, self._pause)
            self._pause = min(2 * self._pause, LONGEST_PAUSE)
        elif (
            not len(hand)
            and self.runner.has_unmeasured
            and time.monotonic() - self._worked_at > QUIET_SECONDS
        ):
            self._let_main_thread_measure()

    def _room(self, is_idle: bool) -> int:
        """Counts the jobs that may be taken now; of an idle worker a batch, so that clips go before films."""
        hand, readers, batch = self.runner.hand, self._readers, self.settings.batch_jobs
        if hand.has_last:
            return 0
        window = self._window - (len(hand) - hand.count("fetch"))
        return min(window, batch) if is_idle else max(0, min(window, readers + 1 - hand.waiting("read")))

    @property
    def _window(self) -> int:
        """Counts the jobs that are in hand at most, beside those that are fetched."""
        return max(2 * self.settings.batch_jobs, self.settings.batch_jobs + self._readers)

    def _squeeze(self) -> int:
        """Takes a job of an owner who has none in hand, though hands are full: it has the next turn."""
        hand = self.runner.hand
        if hand.has_last or len(hand) - hand.count("fetch") >= 2 * self._window:
            return 0
        passed = Passed(owners=hand.owners, are_whole=True, all_films=True)
        return self._begin(self.queue.take(1, is_ahead=True, without=passed))

    def _left_out(self) -> Passed:
        """Names what is not taken: slow addresses hold up nothing else, and one film is in hand at a time."""
        fetching = Counter(attempt.owner for attempt in self.runner.hand.at("fetch"))
        owners = [owner for owner, count in fetching.items() if owner and count >= FETCHES_OF_ONE]
        has_film = self.runner.hand.count("film") > 0
        return Passed(owners, all_fetches=fetching.total() >= MOST_FETCHES, all_films=has_film)

    def _let_main_thread_measure(self) -> None:
        """Gives the thread that has the engine a chance to use it: no job is claimed meanwhile."""
        self._goes_on.clear()
        self._idle.set()
        while not self._is_stopping and not self._goes_on.wait(LONGEST_PAUSE):
            pass

    def _begin(self, offers: Sequence[Offer]) -> int:
        """Claims what is offered and has it run; returns how many that were."""
        claims = [self._claim(offer) for offer in offers if self._is_about_a_job(offer)]
        for offer, claim in claims:
            if isinstance(claim, Claim):
                is_last = offer.is_recovered and 1 < self.settings.attempts <= claim.job.attempt
                self.runner.begin(claim, is_last=is_last)
                continue
            log.info("job not run", job=claim.job_id, why=claim.reason)
            if claim.reason in ("canceled", "exhausted"):
                remove_blob(self.blobs, f"uploads/{claim.job_id}")
        return len(claims)

    def _claim(self, offer: Offer) -> tuple[Offer, Claim | Refusal]:
        attempts = self.settings.attempts
        cause = WorkerLost(f"The workers that ran the job fell silent, {attempts} times in all.")
        claim = self.jobs.claim(
            offer.job_id,
            offer.entry,
            offer.priority,
            self.worker,
            cause=cause,
            is_shared=self.settings.batch_jobs > 1,
            waits=True,
        )
        return offer, claim

    def _is_about_a_job(self, offer: Offer) -> bool:
        """Returns whether an entry names a job; one that does not becomes a dead letter."""
        if not offer.job_id:
            self.jobs.bury("", offer.entry, offer.priority, "the entry names no job", offer.fields)
        return bool(offer.job_id)
