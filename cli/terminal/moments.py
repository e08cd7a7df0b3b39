"""Write times, durations, counts and names for people. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime


def clock_text(wall_s: float) -> str:
    """Return the time of day, UTC."""
    return datetime.fromtimestamp(wall_s, UTC).strftime("%H:%M:%S")


def date_text(wall_s: float) -> str:
    """Return day and minute, UTC."""
    return datetime.fromtimestamp(wall_s, UTC).strftime("%Y-%m-%d %H:%M")


def duration_text(seconds: float) -> str:
    """Return a duration in at most two units: `0.8 s`, `42 s`, `4m12s`, `3h05m`, `12d`."""
    if seconds < 10:
        return f"{max(seconds, 0.0):.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, left_s = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes}m{left_s:02d}s"
    hours, left_min = divmod(minutes, 60)
    return f"{hours}h{left_min:02d}m" if hours < 72 else f"{hours // 24}d"


def whole_duration_text(seconds: int) -> str:
    """Return a setting's duration: `2 d`, `3 h`, `10 min` where whole ones fit, else `90 s`."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds % size == 0:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def count_text(count: int, noun: str) -> str:
    """Return `1 Pod`, `5,000 Pods`."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def names_text(names: Sequence[str], most: int) -> str:
    """Return `a, b, c and 4,997 more`, with so many names at most."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest:,} more" if rest > 0 else "")
