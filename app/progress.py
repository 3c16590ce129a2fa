"""A progress bar on standard error, shown on a terminal only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)


class Bar:
    """Counts files, and lets lines through to standard output unharmed."""

    def __init__(self, progress: Progress, files: int) -> None:
        self._progress = progress
        self._task = progress.add_task("", total=files)

    def say(self, text: str) -> None:
        self._progress.update(self._task, description=text)

    def print(self, lines: Sequence[str]) -> None:
        """Prints the lines of one more file."""
        self._progress.advance(self._task)
        self._progress.stop()
        for line in lines:
            print(line, flush=True)
        if not self._progress.finished:
            self._progress.start()


@contextmanager
def progress(files: int) -> Iterator[Bar]:
    """A bar of so many files."""
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    shown = Progress(
        *columns,
        TimeElapsedColumn(),
        console=console,
        transient=True,
        redirect_stdout=False,
        disable=not console.is_terminal,
    )
    with shown:
        yield Bar(shown, files)
