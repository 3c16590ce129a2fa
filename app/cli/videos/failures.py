"""Lists which files failed, why, and what to do, after everything else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from app.terminal import complain
from extractors.errors import ReelwordError


@dataclass(frozen=True)
class FailedFile:
    """Holds a file with the sentence and the code of what went wrong."""

    file: Path
    advice: str
    code: str

    @classmethod
    def by(cls, file: Path, error: ReelwordError) -> FailedFile:
        """Makes it of an error."""
        return cls(file, error.advice, error.code)


def list_failures(failures: Sequence[FailedFile], count: int, kind: str = "file") -> None:
    """Prints what failed to standard error.

    Args:
        failures: those that failed.
        count: of all.
        kind: what they are called, one of them.
    """
    if failures:
        complain(f"{len(failures)} of {count} {kind if count == 1 else f'{kind}s'} failed:")
    for each in failures:
        complain(f"  {each.file}: {each.advice} [{each.code}]")
