"""The base of every error that a user may meet. It stands here because no package lies lower, and imports
nothing, so that the API's image carries this one file.

    ReelwordError
    ├── MediaError        extractors/media/errors.py        between a file and its frames
    ├── WeightsError      extractors/pretrained/errors.py   between a network's name and its weights
    ├── PretrainedError   models/pretrained/errors.py       between a folder of the hub and its captions
    ├── DataSetError      training/datasets/errors.py       in a captioned set
    ├── JobError          app/errors.py                     while jobs are taken, run and stored
    ├── RequestError      app/api/problems.py               in an HTTP request
    └── single ones beside what raises them, such as CheckpointError (models/checkpoint.py)

``str(error)`` is one sentence about what happened, ``code`` names the kind and never changes, and ``hint``
says what to do, to whoever sent the video: somebody at a page, who has no settings. ``operator_hint`` says
what whoever runs the service can do about it, with settings by name; it stands in logs and on the command
line, and in no answer. Those that say that an argument is wrong are ValueErrors too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, TypeVar


class ReelwordError(Exception):
    """Base of the tree; only its leaves are raised."""

    code: ClassVar[str] = "reelword_error"
    hint: str = ""
    operator_hint: str = ""
    about_media: ClassVar[bool] = False  #: whether it arose between a file and its frames

    @property
    def remedy(self) -> str:
        """Says what to do to somebody who may do all of it: a command's user."""
        return f"{self.hint} {self.operator_hint}".strip()

    @property
    def advice(self) -> str:
        """Says what happened and what to do, as a command prints it."""
        return f"{self} {self.remedy}".strip()

    def document(self) -> dict[str, str]:
        """The error as JSON, fit for visitors: in a failed job, in a report of a command."""
        return {"code": self.code, "message": str(self), "hint": self.hint}


ErrorT = TypeVar("ErrorT", bound=ReelwordError)


def leaves(root: type[ErrorT]) -> Iterator[type[ErrorT]]:
    """The classes below ``root`` that have none below them, in the order of the tree."""
    children = root.__subclasses__()
    if not children:
        yield root
    for child in children:
        yield from leaves(child)
