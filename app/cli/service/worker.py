"""Declares ``reelword worker``; app/worker/worker.py works."""

from __future__ import annotations

import os

from app.cli.streams import Streams, settings_with

#: Of workers and their children: on a machine that they share with the API, requests go first.
NICENESS = 5


def worker(streams: Streams = None) -> None:
    """Runs one worker until it is stopped."""
    from app import logs
    from app.worker.engine.process import EngineProcess

    settings = settings_with(streams)
    logs.configure_logs(settings, process="worker")
    os.nice(max(0, NICENESS - os.nice(0)))
    engine = EngineProcess(settings)
    engine.begin()  # it loads its models while this process imports the rest and speaks to Redis
    from app.worker.worker import work

    work(settings, engine)
