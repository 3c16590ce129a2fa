"""Configures logs: lines of text on a terminal, lines of JSON elsewhere, always on standard error."""

import logging
import sys

import structlog

from app.settings import Settings


def configure_logs(settings: Settings, **context: str) -> None:
    """Sets up structlog for this process; ``context`` stands on every line."""
    is_text = settings.log_format == "text" or (settings.log_format == "auto" and sys.stderr.isatty())
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.dev.ConsoleRenderer() if is_text else structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(settings.log_level.upper())),
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),  # what it is then: it may be replaced
    )
    structlog.contextvars.bind_contextvars(**context)
