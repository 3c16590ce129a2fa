"""Declares ``python -m app worker``; app/worker/worker.py works."""

from __future__ import annotations

from app.cli.streams import Streams, settings_with


def worker(streams: Streams = None) -> None:
    """Runs one worker until it is stopped."""
    from app import logs
    from app.worker.worker import work

    settings = settings_with(streams)
    logs.configure_logs(settings, process="worker")
    work(settings)
