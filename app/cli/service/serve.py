"""Declares ``reelword serve``; app/serve/supervisor.py keeps the processes running."""

from __future__ import annotations

from app.cli.streams import Streams, settings_with


def serve(streams: Streams = None) -> None:
    """Starts Redis, workers and the API, until Ctrl-C."""
    from app.serve import supervisor

    supervisor.serve(settings_with(streams))
