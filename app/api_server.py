"""The API as a process: uvicorn with our application and our logs."""

from __future__ import annotations

import logging
import sys
from contextlib import suppress

import structlog
import uvicorn
from fastapi import FastAPI

from app.api import create_app
from app.connections import limited
from app.settings import Settings

DRAIN_SECONDS = 10  #: a request being answered when the server is told to stop may take so long
IDLE_SECONDS = 30


log = structlog.get_logger(__name__)


class ToStructlog(logging.Handler):
    """What uvicorn has to say, in the form of our own logs."""

    def emit(self, record: logging.LogRecord) -> None:
        log.log(record.levelno, record.getMessage(), exc_info=record.exc_info)


def run(settings: Settings) -> None:
    """Serves until SIGTERM or Ctrl-C. Raises RedisMissing where no Redis is named or runs."""
    logging.basicConfig(handlers=[ToStructlog()], level=logging.WARNING)
    log.info("listening", address=f"{settings.host}:{settings.port}")
    server = uvicorn.Server(configuration(create_app(settings), settings, settings.port))
    with suppress(KeyboardInterrupt):
        server.run()
    if not server.started:
        sys.exit(1)  # uvicorn has logged why


def configuration(
    app: FastAPI, settings: Settings, port: int, drain_seconds: int = DRAIN_SECONDS
) -> uvicorn.Config:
    """How uvicorn runs the application."""
    return uvicorn.Config(
        app,
        host=settings.host,
        port=port,
        http=limited(settings.max_connections),
        log_config=None,
        access_log=False,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=drain_seconds,
        server_header=False,
    )
