"""The engine's process: ``python -m app.worker.engine_child``, started by app/worker/engine_process.py and
gone with it.

Nothing heavy is imported before the settings are here: they name the engine.
"""

from __future__ import annotations

import pkgutil
import signal
import sys
import traceback
from multiprocessing.connection import Connection
from typing import Any

from app.jobs.job import Stage
from app.pipeline.engine_protocol import CaptionEngine
from app.processes import die_with_parent
from app.worker.shared_frames import map_frames


def main(link_descriptor: int, shared: int, parent: int) -> None:
    """Load the models, say what they can do, then answer until the parent is gone."""
    die_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    link = Connection(link_descriptor)
    settings = link.recv()
    try:
        engine: CaptionEngine = pkgutil.resolve_name(settings.engine)(settings)
        link.send(("warm", engine.warm_up()))
    except Exception as error:
        traceback.print_exc()
        link.send(("raised", _sentence(error)))
        return
    serve(engine, link, shared)


def serve(engine: CaptionEngine, link: Connection, shared: int) -> None:
    """Requests from the pipe, one after the other; an unexpected error is an answer too."""

    def report(stage: Stage, share: float) -> None:
        link.send(("progress", (stage, share)))

    while True:
        try:
            places, options = link.recv()
        except (EOFError, OSError):
            return
        try:
            answers: Any = engine.describe_and_caption(map_frames(places, shared), options, report)
        except Exception as error:
            traceback.print_exc()
            link.send(("raised", _sentence(error)))
        else:
            link.send(("answers", answers))


def _sentence(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:500]


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:4]))
