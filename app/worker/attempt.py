"""Holds one attempt at a job: how far it is, and whether to go on."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from app.documents.job import Answer
from app.jobs.job import Stage
from app.jobs.job_store import Claim
from app.jobs.options import CaptionOptions
from extractors.media.request import Decoded

Stop = Literal["canceled", "lost", "deadline", "handed back"]

#: Where each stage begins and ends in the progress of the whole job.
SHARES: Mapping[Stage, tuple[float, float]] = {
    "decode": (0.0, 0.4),
    "extract": (0.4, 0.8),
    "caption": (0.8, 1.0),
}


@dataclass(eq=False)
class Attempt:
    """One attempt at one job. The main thread moves it on; the watch reads it and may stop it.

    options: the job's, who writes filled in. answer: what is known so far; reported: as much of it as is on
    the record. is_settled: its end, or its return to the queue, is there too.
    spent: seconds of the job's time used up; others' turns do not count.
    """

    claim: Claim
    options: CaptionOptions | None = None
    stage: Stage = "decode"
    share: float = 0.0
    answer: Answer = field(default_factory=Answer)
    reported: Answer | None = None
    decoded: Decoded | None = None
    stopped: Stop | None = None
    is_settled: bool = False
    spent: float = 0.0
    _since: float | None = None

    @property
    def progress(self) -> float:
        begin, end = SHARES[self.stage]
        return begin + (end - begin) * min(max(self.share, 0.0), 1.0)

    def set_stage(self, stage: Stage, share: float = 0.0) -> None:
        self.stage, self.share = stage, share

    def resume(self) -> None:
        self._since = time.monotonic()

    def pause(self) -> None:
        self.spent, self._since = self.elapsed, None

    @property
    def elapsed(self) -> float:
        return self.spent + (0.0 if self._since is None else time.monotonic() - self._since)

    def next_attempt(self, claim: Claim) -> None:
        """Another attempt, with what the last one decoded."""
        self.claim, self.spent, self.share = claim, 0.0, 0.0
