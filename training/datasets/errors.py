"""Defines the errors of a captioned set as a whole.

``str(error)`` is a sentence that says what is wrong, ``hint`` one that says what to do. What is wrong with
single captions and videos does not end the reading: notices report it (caption_set.py).
"""

from extractors.errors import ReelwordError


class DataSetError(ReelwordError, ValueError, code="data_set_error"):
    """Root of the tree; only its leaves are raised."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class UnknownDataSet(DataSetError, code="unknown_data_set"):
    """No set has that name."""


class UnknownProtocol(DataSetError, code="unknown_protocol"):
    """No paper of that name used the set."""


class UnknownSplit(DataSetError, code="unknown_split"):
    """No split has that name."""


class FolderMissing(DataSetError, code="folder_missing"):
    """There is no folder of that name."""


class AnnotationsMissing(DataSetError, code="annotations_missing"):
    """A file with captions or splits is not there."""


class AnnotationsDamaged(DataSetError, code="annotations_damaged"):
    """A file with captions or splits is there and has another form than its authors gave it."""


class IdsCollide(DataSetError, code="ids_collide"):
    """Two different videos have one id."""


class NothingToUse(DataSetError, code="nothing_to_use"):
    """No video has both a file and a caption."""
