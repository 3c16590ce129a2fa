"""The API as a process: uvicorn with our application and our logs."""

from __future__ import annotations

import logging

import structlog
import uvicorn

from app.api import create_app
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
    uvicorn.run(
        create_app(settings),
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=False,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=DRAIN_SECONDS,
        server_header=False,
    )
