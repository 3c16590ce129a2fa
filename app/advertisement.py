"""What a worker says of itself: itself, and the captioners that it has loaded."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict


class CaptionerInfo(BaseModel):
    """A captioner that a worker has loaded.

    features: stream name → network, weights and preprocessing it was trained on. scores: metric ×100 by data
    set. seconds: of one default job, measured when the worker warmed up.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    weights_sha256: str
    features: dict[str, Any]
    scores: dict[str, Any] = {}
    seconds: float | None = None


class WorkerInfo(BaseModel):
    """A worker. ``is_ready``: its models are loaded and its engine lives."""

    model_config = ConfigDict(frozen=True)

    name: str
    pid: int
    host: str
    version: str
    is_ready: bool
    device: str
    started_at: float
    captioners: list[CaptionerInfo]
    engine_restarts: int = 0
