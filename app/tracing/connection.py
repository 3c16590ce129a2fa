"""Connects a process to the collector of traces that the settings name."""

from __future__ import annotations

from app.errors import TracingMissing
from app.settings import Settings
from app.tracing.spans import Tracing


def connect_tracing(settings: Settings, process: str, instance: str = "") -> Tracing:
    """Makes what tells of spans, or what does not.

    Args:
        settings: whether there is a collector, and where.
        process: ``api`` or ``worker``.
        instance: which of them; empty where nothing tells them apart.

    Raises:
        TracingMissing: a collector is named, and OpenTelemetry is not installed.
    """
    if settings.traces is None:
        return Tracing()
    try:
        from app.tracing.open_telemetry import OtlpTracing
    except ImportError as error:
        raise TracingMissing("REELWORD_TRACES is set, and OpenTelemetry is not installed.") from error
    return OtlpTracing(settings.traces, process, instance)
