"""Prints for people: names that cannot harm a terminal, files that failed, tables that fit any width, a bar.

Rich is imported by what draws with it, so that a command that draws nothing starts at once.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from app.errors import JobFailure
from extractors.errors import ReelwordError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress
    from rich.text import Text

    from app.settings import Settings

PROGRAM = "reelword"  #: what the program is called; in a checkout python -m app starts it, too
FileT = TypeVar("FileT")
UNLIMITED = 10_000  #: columns, to measure what a text would take


def printable(text: str) -> str:
    """Writes control characters, and bytes of a file name that are no UTF-8, as escapes.

    A file may be called anything, also what clears a terminal, hides text or breaks the line.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def own_command(arguments: str, settings: Settings) -> str:
    """Writes ``reelword`` with arguments as it can be typed.

    That is of a process in a container as the settings say, else by the script beside this Python, or by this
    Python where there is none, on the same data folder.
    """
    if settings.command:
        return f"{settings.command} {arguments}"
    script, here = Path(sys.executable).absolute().with_name(PROGRAM), Path.cwd()
    program, is_script = (script, True) if script.exists() else (Path(sys.executable).absolute(), False)
    shown = program.relative_to(here) if program.is_relative_to(here) else program
    line = f"{shlex.quote(str(shown))} {'' if is_script else '-m app '}{arguments}"
    if settings.data == Path(str(type(settings).model_fields["data"].default)).absolute():
        return line
    return f"REELWORD_DATA={shlex.quote(str(settings.data))} {line}"


def advice_on_names(settings: Settings) -> str | None:
    """Returns a warning where other machines can reach the service and are refused; None where not so."""
    if not settings.is_nameless:
        return None
    return (
        "Other machines are refused (host_not_allowed), as no name is given that they may ask for: set "
        "REELWORD_ALLOWED_HOSTS to this machine's name or address, as reel.example,192.168.1.5."
    )


def complain(line: str) -> None:
    """Prints a line to standard error."""
    print(printable(line), file=sys.stderr)


@dataclass(frozen=True)
class FailedFile:
    """Holds a file with the sentence and the code of what went wrong."""

    file: str  #: or its address
    advice: str
    code: str

    def __str__(self) -> str:
        return f"{self.file}: {self.advice} [{self.code}]"

    @classmethod
    def by(cls, file: str, error: ReelwordError) -> FailedFile:
        """Makes it of an error."""
        return cls(file, error.advice, error.code)


def say(line: str) -> None:
    """Prints a line to standard output."""
    print(printable(line), flush=True)


def clock(seconds: float) -> str:
    """Writes seconds as 0:00:04.5, however many."""
    tenths = round(seconds * 10)
    return f"{tenths // 36000}:{tenths // 600 % 60:02d}:{tenths // 10 % 60:02d}.{tenths % 10}"


def printable_json(line: str) -> str:
    """Writes such characters as JSON escapes them: the same document."""
    return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in line)


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], console: Console | None = None
) -> None:
    """Prints rows as a table, or, where the terminal is narrower than their longest words, one below another.

    Args:
        columns: the headings; the first column names its row.
        rows: cells, whose line breaks are kept.
        console: standard output where none is given.
    """
    from rich.console import Console
    from rich.table import Column, Table
    from rich.text import Text

    console = console or Console()
    cells = [[_to_text(cell) for cell in row] for row in rows]
    widths = _share_width([map(Text, columns), *cells], console)
    if widths is None:
        _print_below_each_other(columns, cells, console)
        return
    table = Table(*map(Column, columns), show_edge=False)
    for column, width in zip(table.columns, widths, strict=True):
        column.width = width
    for row in cells:
        table.add_row(*row)
    console.print(table)


def _share_width(rows: Sequence[Iterable[Text]], console: Console) -> list[int] | None:
    """Shares out the width: each column gets its longest word, and the rest goes in equal parts to those that
    need more, so that short columns break no line; None where there is too little. Rich's own way shortens
    long columns first, whatever words are in them."""
    from rich.measure import Measurement

    ranges = [
        [Measurement.get(console, console.options.update(width=UNLIMITED), cell) for cell in column]
        for column in zip(*rows, strict=True)
    ]
    least = [max(each.minimum for each in column) for column in ranges]
    needs = [max(each.maximum for each in column) - least[i] for i, column in enumerate(ranges)]
    spare = console.width - sum(least) - (3 * len(least) - 1)  # a space on either side, a line between
    if spare < 0:
        return None
    for rank, i in enumerate(sorted(range(len(needs)), key=needs.__getitem__)):
        share = min(needs[i], spare // (len(needs) - rank))
        least[i] += share
        spare -= share
    return least


def _print_below_each_other(columns: Sequence[str], rows: Sequence[Sequence[Text]], console: Console) -> None:
    from rich.padding import Padding
    from rich.text import Text

    for name, *cells in rows:
        console.print(name, style="bold")
        for column, cell in zip(columns[1:], cells, strict=True):
            if cell:
                line = Text(f"{column}: ", overflow="fold").append_text(cell)
                console.print(Padding(line, (0, 0, 0, 2)))
    console.print()


def _to_text(cell: str) -> Text:
    """Makes a cell without markup: what stands in brackets is part of a name."""
    from rich.text import Text

    return Text("\n".join(map(printable, cell.split("\n"))), overflow="fold")


class FileProgress:
    """Counts files, and lets lines through to standard output unharmed."""

    def __init__(self, progress: Progress, files: int) -> None:
        self._progress = progress
        self._task = progress.add_task("", total=files)

    def say(self, text: str) -> None:
        """Changes the words before the bar."""
        self._progress.update(self._task, description=text)

    def advance(self) -> None:
        """Counts one more file."""
        self._progress.advance(self._task)

    def print(self, *lines: str) -> None:
        """Prints lines above the bar."""
        self._progress.stop()
        for line in lines:
            print(line, flush=True)
        if not self._progress.finished:
            self._progress.start()


@contextmanager
def show_progress(files: int) -> Iterator[FileProgress]:
    """Shows a bar of so many files on standard error, on a terminal only."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
    )

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
        yield FileProgress(shown, files)


def work_through(
    files: Sequence[FileT], work: Callable[[FileT, FileProgress], FailedFile | None], kind: str = "file"
) -> int:
    """Works on files one after the other behind a bar, and returns how many failed.

    Those are printed to standard error, after everything else.

    Args:
        files: ``str`` of one is what its user called it.
        work: works on one and prints what came of it; returns why it failed, or raises that as an error of
            the video or the job. Any other error ends the command.
        kind: what the files are called, one of them.
    """
    failures = []
    with show_progress(len(files)) as bar:
        for file in files:
            try:
                failure = work(file, bar)
            except ReelwordError as error:
                if not (error.about_media or isinstance(error, JobFailure)):
                    raise
                failure = FailedFile.by(str(file), error)
            bar.advance()
            failures += [] if failure is None else [failure]
    if failures:
        complain(f"{len(failures)} of {len(files)} {kind if len(files) == 1 else f'{kind}s'} failed:")
    for each in failures:
        complain(f"  {each}")
    return len(failures)
