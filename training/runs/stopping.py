"""Ends a training where its state is whole, when SIGINT or SIGTERM comes: from a terminal, or a cluster."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self

from extractors.errors import ReelwordError


class Stopped(ReelwordError, code="training_stopped"):
    """A signal ended the training; its state is saved."""

    hint = "The same command goes on from there."

    def __init__(self, number: int) -> None:
        super().__init__(f"Stopped by {signal.Signals(number).name}; the run's state is saved.")
        #: What shells say of a command that the signal ended.
        self.exit_code = 128 + number


class StopSignals:
    """Remembers SIGINT and SIGTERM while it is entered; a second SIGINT interrupts at once.

    heeded: False in processes that save nothing, which go on until the first one is gone.
    """

    def __init__(self, heeded: bool = True) -> None:
        self._heeded = heeded
        self._number: int | None = None
        self._interrupts = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # the one that signals can be taken in
            numbers = (signal.SIGINT, signal.SIGTERM)
            self._before = {each: signal.signal(each, self._take) for each in numbers}
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def check(self) -> None:
        """Ends the training if a signal came. Raises Stopped."""
        if self._number is not None:
            raise Stopped(self._number)

    @contextmanager
    def interrupting(self) -> Iterator[None]:
        """Lets a signal end the block at once, since it changes no state. Raises Stopped."""
        self.check()
        self._interrupts = True
        try:
            yield
        finally:
            self._interrupts = False

    def _take(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        if not self._heeded:
            return
        if self._number == number == signal.SIGINT:
            raise KeyboardInterrupt
        self._number = self._number or number
        if self._interrupts:
            self.check()
