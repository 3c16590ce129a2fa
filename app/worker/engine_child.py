"""The engine's process: ``python -m app.worker.engine_child``, started by app/worker/engine_process.py and
gone with it.

Nothing heavy is imported before the settings are here: they name the engine.
"""

from __future__ import annotations

import pkgutil
import traceback
from typing import Any

from app.jobs.job import Stage
from app.pipeline.engine_protocol import CaptionEngine
from app.worker.shared_frames import map_frames
from extractors.child_process import ParentLink, join_parent


def main() -> None:
    """Loads the models, says what they can do, then answers until the parent is gone."""
    parent = join_parent()
    link = parent.link
    settings = link.recv()
    try:
        engine: CaptionEngine = pkgutil.resolve_name(settings.engine)(settings)
        link.send(("warm", engine.warm_up()))
    except Exception as error:
        traceback.print_exc()
        link.send(("raised", _sentence(error)))
        return
    answer_requests(engine, parent)


def answer_requests(engine: CaptionEngine, parent: ParentLink) -> None:
    """Answers requests from the pipe, one after the other; an unexpected error is an answer too."""
    link = parent.link

    def report(stage: Stage, share: float) -> None:
        link.send(("progress", (stage, share)))

    while True:
        try:
            places, options = link.recv()
        except (EOFError, OSError):
            return
        try:
            frames = map_frames(places, parent.shared)
            answers: Any = engine.describe_and_caption(frames, options, report)
        except Exception as error:
            traceback.print_exc()
            link.send(("raised", _sentence(error)))
        else:
            link.send(("answers", answers))


def _sentence(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:500]


if __name__ == "__main__":
    main()
