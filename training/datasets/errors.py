"""Defines the errors of a captioned set as a whole.

    DataSetError
    ├── UnknownDataSet        unknown_data_set
    ├── UnknownProtocol       unknown_protocol
    ├── UnknownSplit          unknown_split
    ├── FolderMissing         folder_missing
    ├── AnnotationsMissing    annotations_missing
    ├── AnnotationsDamaged    annotations_damaged
    ├── IdsCollide            ids_collide
    └── NothingToUse          nothing_to_use

``str(error)`` is a sentence that says what is wrong, ``hint`` one that says what to do. What is wrong with
single captions and videos does not end the reading: notices report it (caption_set.py).
"""

from __future__ import annotations

from extractors.errors import ReelwordError


class DataSetError(ReelwordError, ValueError):
    """Root of the tree; only its leaves are raised."""

    code = "data_set_error"

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class UnknownDataSet(DataSetError):
    code = "unknown_data_set"


class UnknownProtocol(DataSetError):
    """No paper of that name used the set."""

    code = "unknown_protocol"


class UnknownSplit(DataSetError):
    code = "unknown_split"


class FolderMissing(DataSetError):
    code = "folder_missing"


class AnnotationsMissing(DataSetError):
    """A file with captions or splits is not there."""

    code = "annotations_missing"


class AnnotationsDamaged(DataSetError):
    """A file with captions or splits is there and has another form than its authors gave it."""

    code = "annotations_damaged"


class IdsCollide(DataSetError):
    """Two different videos have one id."""

    code = "ids_collide"


class NothingToUse(DataSetError):
    """No video has both a file and a caption."""

    code = "nothing_to_use"
