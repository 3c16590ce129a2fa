"""The errors that a job may end with: those of app/errors.py and of extractors/errors.py, seen alike."""

from __future__ import annotations

from typing import ClassVar, Protocol


class NamedError(Protocol):
    """``code`` is stable, ``hint`` says what to do, ``str`` of it is one sentence."""

    code: ClassVar[str]
    hint: ClassVar[str]


def error_document(error: NamedError) -> dict[str, str]:
    """The ``error`` member of a failed job."""
    return {"code": error.code, "message": str(error), "hint": error.hint}
