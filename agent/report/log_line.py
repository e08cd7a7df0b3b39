"""
The one form of a log line, of agent, guard and wait: a JSON object with timestamp, level and event first.

The guard stays beside every worker and loads little, so this is written without the package json. On its start path.
"""

from __future__ import annotations

import time
from _json import encode_basestring_ascii

from inplace.common.bare.typed import Any, Mapping


class LevelLog:
    """A log whose lines of all levels go one way, see `agent.report.log.Log`."""

    def debug(self, event: str, **fields: Any) -> None:
        """Log at level debug."""
        self._log("debug", event, fields)

    def info(self, event: str, **fields: Any) -> None:
        """Log at level info."""
        self._log("info", event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        """Log at level warning."""
        self._log("warning", event, fields)

    def error(self, event: str, **fields: Any) -> None:
        """Log at level error."""
        self._log("error", event, fields)

    def _log(self, level: str, event: str, fields: dict[str, Any]) -> None:
        raise NotImplementedError


def log_line(wall_s: float, level: str, event: str, fields: Mapping[str, Any]) -> str:
    """Return one line, without its end.

    Args:
        wall_s: Unix time of the event.
        level: debug, info, warning or error.
        event: its constant name.
        fields: what else is known; a value that JSON does not have is written as its repr.
    """
    line = {"timestamp": rfc3339(wall_s), "level": level, "event": event, **fields}
    return f"{{{', '.join(f'{encode_basestring_ascii(name)}: {_json(value)}' for name, value in line.items())}}}"


def rfc3339(wall_s: float) -> str:
    """Format a wall time in UTC with milliseconds (datetime would be one more import on the start path)."""
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(wall_s))}.{int(wall_s * 1000) % 1000:03d}Z"


def _json(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float) and value - value == 0:  # no NaN, no infinity
        return repr(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_json, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_json(str(name))}: {_json(item)}' for name, item in value.items())}}}"
    return str(encode_basestring_ascii(value if isinstance(value, str) else repr(value)))
