"""Structured logs: JSON lines, or readable lines for a terminal."""

from __future__ import annotations

import logging
import sys
import time
from typing import Any

import structlog
from structlog.typing import EventDict

from inplace.common.kube.timestamps import precise_time


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
            _begin,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )


def _begin(_logger: Any, level: str, fields: EventDict) -> EventDict:
    """Begin a line as the agent's lines begin: when, how urgent, what."""
    return {"timestamp": precise_time(time.time()), "level": level, "event": fields.pop("event"), **fields}
