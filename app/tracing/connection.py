"""Connects a process to the collector of traces that the settings name."""

from app.settings import Settings
from app.tracing.spans import Tracing
from extractors.errors import name_missing_packages


def connect_tracing(settings: Settings, process: str, instance: str = "") -> Tracing:
    """Makes the sender of spans, or one that sends none.

    Args:
        settings: whether there is a collector, and where.
        process: ``api`` or ``worker``.
        instance: which of them; empty where there is one.

    Raises:
        PackageMissing: a collector is named, and OpenTelemetry is not installed.
    """
    if settings.traces is None:
        return Tracing()
    with name_missing_packages():
        from app.tracing.open_telemetry import OtlpTracing
    return OtlpTracing(settings.traces, process, instance)
