"""Holds the attempts in a worker's hands, and where each of them waits, for the threads that move them on.

    fetch → read → caption → finish
              ↘ film, once nothing else is in hand

One thread at a time has an attempt: the one that took it from where it waited. Frames that have been read lie
in memory until their job is over; beyond so many bytes decoders pause, all but that of the oldest one.
"""

import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Literal

from app.worker.attempt import Attempt

MOST_OWNERS = 1000  #: whose turns are remembered
FILM_SECONDS = 5.0  #: that a film waits for the clips in hand at most
COMPANION_SECONDS = 0.005  #: that a job which could be captioned waits for others
LOOK_SECONDS = 0.1  #: between two looks whether a job whose decoder pauses is to be stopped
Place = Literal["fetch", "read", "caption", "film", "finish"]


class JobsInHand:
    """Holds attempts from the claim to their end, and at most so many bytes of frames that wait. Any thread
    may call it.

    ``on_end`` is called with each attempt that has ended, by the thread that had it.
    """

    def __init__(self, most_bytes: int, on_end: Callable[[Attempt], None]) -> None:
        self._most_bytes, self._on_end = most_bytes, on_end
        self._changed = threading.Condition()
        self._places: dict[Attempt, Place] = {}
        self._waiting: dict[Place, deque[Attempt]] = {
            "fetch": deque(), "read": deque(), "caption": deque(), "film": deque(), "finish": deque()
        }  # fmt: skip
        self._since: dict[Attempt, float] = {}
        self._bytes: dict[Attempt, int] = {}  # of frames, the job that began first at the front
        self._failure: BaseException | None = None  # that a thread has met
        self._is_closed = False
        self._moves = 0
        self._turns = 0  # that owners have had
        self._turn_of: dict[tuple[Place, str], int] = {}  # the last one of each

    @property
    def moves(self) -> int:
        """Counts how often something has moved so far."""
        return self._moves

    def _tell(self) -> None:
        self._moves += 1
        self._changed.notify_all()

    def __len__(self) -> int:
        return len(self._places)

    def count(self, place: Place) -> int:
        """Counts those that wait there or are being worked on."""
        return len(self.at(place))

    def at(self, place: Place) -> list[Attempt]:
        """Lists those that wait there or are being worked on."""
        with self._changed:
            return [attempt for attempt, where in self._places.items() if where == place]

    @property
    def owners(self) -> list[str]:
        """Lists those of whom anything is in hand."""
        with self._changed:
            return sorted({attempt.owner for attempt in self._places})

    def waiting(self, place: Place) -> int:
        """Counts those that no thread has taken there yet."""
        with self._changed:
            return len(self._waiting[place])

    @property
    def has_last(self) -> bool:
        """Returns whether one of them is not to be joined by others."""
        with self._changed:
            return any(attempt.is_last for attempt in self._places)

    def put(self, attempt: Attempt, place: Place) -> None:
        """Has an attempt, a new one or one that the caller has taken, wait there."""
        with self._changed:
            self._places[attempt] = place
            if place == "caption" and attempt.is_alone:
                self._waiting[place].appendleft(attempt)  # what it is run alone for is soon known
            else:
                self._waiting[place].append(attempt)
            self._since[attempt] = time.monotonic()
            self._tell()

    def take(self, place: Place) -> Attempt | None:
        """Waits for the next attempt there, of each owner by turns; None once this is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting[place] or self._is_closed)
            return next(iter(self._by_turns(place, 1)), None)

    def _by_turns(self, place: Place, most: int) -> list[Attempt]:
        """Takes up to ``most`` of those that wait there and may share a batch, or be the only ones taken.

        The owner goes first whose last turn is longest ago, and of one owner who came first. Beside an
        owner's only one go other owners' only ones: a batch is answered whole, and it waits for all of it.
        """
        taken: list[Attempt] = []
        if len(self._turn_of) > MOST_OWNERS:
            self._turn_of.clear()
        while len(taken) < most:
            waiting = [each for each in self._waiting[place] if most == 1 or not each.is_alone]
            if not waiting:
                break
            attempt = min(waiting, key=lambda each: self._turn_of.get((place, each.owner), 0))
            counts = Counter(each.owner for each in [*taken, *waiting])
            if counts[attempt.owner] > 1 and any(counts[each.owner] == 1 for each in taken):
                break
            self._count_turn(place, attempt)
            self._waiting[place].remove(attempt)
            taken.append(attempt)
        return taken

    def _count_turn(self, place: Place, attempt: Attempt) -> None:
        self._turns += 1
        self._turn_of[place, attempt.owner] = self._turns

    def take_batch(self, most: int, patience: float) -> list[Attempt]:
        """Waits ``patience`` seconds for attempts to be captioned together, ``most`` of them.

        The first one waits a moment for others, as long as some are being read. Returns those that are ready;
        one that is alone by itself; a film where nothing else is in hand, or that has waited for long: clips
        go between its segments; none. Raises what another thread has met.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    self._waiting["caption"] or self._is_film_next() or self._is_film_due() or self._failure
                ),
                patience,
            )
            self._raise_failure()
            ready = self._waiting["caption"]
            if self._is_film_due() or (not ready and self._is_film_next()):
                return [self._waiting["film"].popleft()]
            if not ready:
                return []
            if not ready[0].is_alone:
                left = self._since[ready[0]] + COMPANION_SECONDS - time.monotonic()
                self._changed.wait_for(
                    lambda: len(ready) >= most or "read" not in self._places.values(), max(0.0, left)
                )
            return self._take_ready(most)

    def _is_film_next(self) -> bool:
        return bool(self._waiting["film"]) and all(place == "film" for place in self._places.values())

    def _is_film_due(self) -> bool:
        films = self._waiting["film"]
        return bool(films) and time.monotonic() - self._since[films[0]] > FILM_SECONDS

    def take_films(self) -> list[Attempt]:
        """Takes all films that wait."""
        with self._changed:
            films = list(self._waiting["film"])
            self._waiting["film"].clear()
            return films

    def take_ready(self, most: int, film: Attempt) -> list[Attempt]:
        """Takes what is ready to be captioned together, as ``take_batch`` does, and waits for nothing.

        It is taken after a segment of ``film``, which was its owner's turn: other owners' clips come next.
        """
        with self._changed:
            self._raise_failure()
            self._count_turn("caption", film)
            return self._take_ready(most)

    def _take_ready(self, most: int) -> list[Attempt]:
        """Takes what is captioned next; half as many together where several owners share the worker, so that
        one's only clip waits half as long for a batch of another's.
        """
        ready = self._waiting["caption"]
        if ready and ready[0].is_alone:
            return [ready.popleft()]
        owners = {owner for place, owner in self._turn_of if place == "caption"}
        return self._by_turns("caption", most if len(owners) < 2 else (most + 1) // 2)

    def take_all(self) -> list[Attempt]:
        """Takes all that no thread works on."""
        with self._changed:
            attempts = [attempt for waiting in self._waiting.values() for attempt in waiting]
            for waiting in self._waiting.values():
                waiting.clear()
            return attempts

    def drop(self, attempt: Attempt) -> None:
        """Lets go of an attempt that has ended, and of its frames."""
        with self._changed:
            is_new = self._places.pop(attempt, None) is not None
            self._since.pop(attempt, None)
            self._bytes.pop(attempt, None)
            self._tell()
        if is_new:
            self._on_end(attempt)

    def wait_for_move(self, moves: int, seconds: float) -> None:
        """Waits until something has moved since ``moves``, or so long."""
        with self._changed:
            self._changed.wait_for(lambda: self._moves != moves, seconds)

    def wait_until_empty(self, seconds: float) -> bool:
        """Waits until all have ended, and forgets what threads have met meanwhile; False after so long."""
        with self._changed:
            is_empty = self._changed.wait_for(lambda: not self._places, seconds)
            self._failure = None
            return is_empty

    def admit(self, attempt: Attempt, size: int) -> None:
        """Counts bytes of frames of ``attempt``, and waits while there are too many.

        The job that began first never waits, nor one that has been stopped. Waiting takes none of its time.
        """
        with self._changed:
            self._bytes.setdefault(attempt, 0)
            if not self._is_admitted(attempt, size):
                attempt.clock.pause()
                while not self._is_admitted(attempt, size):
                    self._changed.wait(LOOK_SECONDS)
                attempt.clock.resume()
            self._bytes[attempt] += size

    def _is_admitted(self, attempt: Attempt, size: int) -> bool:
        is_first = next(iter(self._bytes)) is attempt
        return is_first or attempt.stopped is not None or sum(self._bytes.values()) + size <= self._most_bytes

    def forget_frames(self, attempt: Attempt) -> None:
        """Counts the frames of ``attempt`` no more: it has none, or reads them anew."""
        with self._changed:
            self._bytes.pop(attempt, None)
            self._tell()

    def fail(self, error: BaseException) -> None:
        """Has the next ``take_batch`` raise what a thread cannot deal with."""
        with self._changed:
            self._failure = self._failure or error
            self._tell()

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def close(self) -> None:
        """Ends all waiting for attempts."""
        with self._changed:
            self._is_closed = True
            self._tell()
