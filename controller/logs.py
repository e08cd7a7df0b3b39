"""Structured logs: JSON lines, or readable lines for a terminal."""

from __future__ import annotations

import logging
import sys
from typing import Any

import structlog


def configure_logs(level: str, form: str) -> None:
    """Configure structlog for this process.

    Args:
        level: debug, info, warning or error.
        form: json or text.
    """
    renderer: Any = structlog.processors.JSONRenderer()
    if form == "text":
        renderer = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
