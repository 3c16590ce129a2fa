"""The words for where a job stands. Nothing is imported here, so that the engine's process starts quickly."""

from __future__ import annotations

from typing import Literal, get_args

State = Literal["queued", "running", "succeeded", "failed", "canceled", "expired"]
Stage = Literal["decode", "extract", "caption"]
Priority = Literal["high", "normal", "low"]

PRIORITIES: tuple[Priority, ...] = get_args(Priority)
