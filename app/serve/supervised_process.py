"""Keeps a process running: restarts it when it ends, with growing pauses."""

import os
import time
from collections.abc import Callable, Mapping, Sequence

import structlog

from extractors.child_process import ChildProcess, describe_status

AT_ONCE = 3  #: restarts without a pause
FIRST_PAUSE = 0.5  #: seconds before the first restart after those; doubled each time
LONGEST_PAUSE = 30.0
SETTLED_AFTER = 60.0  #: a process that lived this long is healthy, and its next end is a first one

log = structlog.get_logger(__name__)


class Backoff:
    """Chooses when to try again: at once what was healthy, later and later (``longest``) what fails."""

    def __init__(self, longest: float = LONGEST_PAUSE) -> None:
        self._longest = longest
        self._ends = 0
        self._began = 0.0
        self._due = 0.0

    @property
    def is_due(self) -> bool:
        return time.monotonic() >= self._due

    def note_start(self) -> None:
        self._began = time.monotonic()

    def note_end(self) -> float:
        """Notes an end and returns the seconds until the next try."""
        if time.monotonic() - self._began > SETTLED_AFTER:
            self._ends = 0
        self._ends += 1
        pause = self._pause()
        self._due = time.monotonic() + pause
        return pause

    def _pause(self) -> float:
        doublings = min(self._ends - AT_ONCE - 1, 30)  # 30: beyond any longest pause
        return 0.0 if doublings < 0 else min(FIRST_PAUSE * 2.0**doublings, self._longest)


class SupervisedProcess:
    """Restarts one process of the service when it ends; it is told to end with this one, however that comes.

    Args:
        name: what the log calls it.
        command: the program and what it is called with.
        environment: variables beside those of this process.
        errors: descriptor for its standard error, this process's own by default.
        when_dead: is called with its process id once it has ended by itself.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        errors: int | None = None,
        when_dead: Callable[[int], None] | None = None,
    ) -> None:
        self.name, self._errors, self._when_dead = name, errors, when_dead
        self._command, self._environment = list(command), dict(environment)
        self._backoff = Backoff()
        self._process: ChildProcess | None = None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def ensure_running(self) -> None:
        """Starts the process where it does not run and a start is due."""
        if self._process is not None:
            status = self._process.status
            if status is None:
                return
            pid, self._process = self._process.pid, None
            how, again_in = describe_status(status), self._backoff.note_end()
            log.warning("process ended", process=self.name, how=how, again_in=again_in)
            if self._when_dead is not None:
                self._when_dead(pid)
        if self._backoff.is_due:
            self._start()

    def _start(self) -> None:
        self._backoff.note_start()
        environment = {**os.environ, **self._environment}
        try:
            self._process = ChildProcess(self._command, environment=environment, errors=self._errors)
        except OSError as error:  # no memory or no process to be had at the moment
            pause = self._backoff.note_end()
            log.warning("process does not start", process=self.name, reason=str(error), again_in=pause)

    def terminate(self) -> None:
        """Asks it to end, and does not wait."""
        if self._process is not None:
            self._process.terminate()

    def finish(self, until: float) -> None:
        """Waits for the end until then (monotonic seconds), and enforces it after."""
        if self._process is not None and not self._process.finish(until - time.monotonic()):
            log.warning("process had to be killed", process=self.name)
        self._process = None
