"""What a user says about windows, of whichever extractor: the rest stays as the extractor has it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from extractors.windows import Windows


@dataclass(frozen=True)
class WindowOptions:
    """The members of ``Windows`` that a user may set; None leaves the extractor's own.

    Raises ValueError where both a rate and a total are given.
    """

    stack_size: int | None = None
    step_size: int | None = None
    extraction_fps: float | None = None
    extraction_total: int | None = None
    most: int | None = None

    def __post_init__(self) -> None:
        if self.extraction_fps is not None and self.extraction_total is not None:
            raise ValueError("extraction_fps and extraction_total exclude each other: give one of them")

    def over(self, own: Windows) -> Windows:
        """``own`` with what was said in its place; a rate takes a total's place, and the other way round.

        Raises ValueError where the whole makes no sense.
        """
        said: dict[str, Any] = {name: value for name, value in asdict(self).items() if value is not None}
        if self.extraction_fps is not None:
            said["extraction_total"] = None
        if self.extraction_total is not None:
            said["extraction_fps"] = None
        return replace(own, **said)
