"""The API as a process: uvicorn with our application and our logs."""

from __future__ import annotations

import uvicorn

from app.api import create_app
from app.settings import Settings

DRAIN_SECONDS = 10  #: a request being answered when the server is told to stop may take so long
IDLE_SECONDS = 30


def run(settings: Settings) -> None:
    """Serves until SIGTERM or Ctrl-C. Raises RedisMissing where no Redis is named or runs."""
    uvicorn.run(
        create_app(settings),
        host=settings.host,
        port=settings.port,
        log_level=settings.log_level,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=DRAIN_SECONDS,
        server_header=False,
    )
