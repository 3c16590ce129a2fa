"""Connects a process to the collector of traces that the settings name."""

from app.settings import Settings
from app.tracing.spans import Tracing
from extractors.errors import name_missing_packages


def connect_tracing(settings: Settings, process: str, instance: str = "") -> Tracing:
    """Makes the sender of spans, or one that sends none. Raises PackageMissing: no OpenTelemetry is here.

    Args:
        settings: whether there is a collector, and where.
        process: ``api`` or ``worker``.
        instance: which of them; empty where there is one.
    """
    if settings.traces is None:
        return Tracing()
    with name_missing_packages():
        from app.tracing.open_telemetry import OtlpTracing
    return OtlpTracing(settings.traces, process, instance)
