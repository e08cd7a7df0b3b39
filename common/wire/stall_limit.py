"""
The watchdog's limits as texts: of a variable, or both in the JobSet's annotation. Pure.

Agents obey them, the controller says what is wrong with the annotation, and `inplace lint` says so before both.
"""

from __future__ import annotations

from inplace.common.bare.typed import Final
from inplace.common.wire.parts import parts_of

LIMIT_S_MIN: Final = 0.5  # the agent looks ten times a second at most, and a busy machine delays a step by that much
LIMIT_S_MAX: Final = 604_800.0  # a week, as a busy phase
AFTER: Final = "after"  # the annotation's parts
START: Final = "start"
EXPECTED: Final = f"seconds from {LIMIT_S_MIN:g} to {LIMIT_S_MAX:g}, or 0 for off"


def parse_limit(text: str) -> float | None:
    """Return a limit in seconds; None for off.

    Raises:
        ValueError: it is no number of the range (its writer is at fault).
    """
    try:
        value = float(text) if text.isascii() else -1.0
    except ValueError:
        value = -1.0
    if value == 0.0:
        return None
    if LIMIT_S_MIN <= value <= LIMIT_S_MAX:
        return value
    raise ValueError(f"expected {EXPECTED}, saw {text[:40]!r}")


def read_limits(text: str) -> tuple[float | None, float | None]:
    """Return the limits of the annotation, between two steps and for the start; None for off.

    Raises:
        ValueError: it cannot be read; the message says what was expected.
    """
    given = parts_of(text, AFTER)
    if unknown := given.keys() - {AFTER, START}:
        raise ValueError(f"expected the names {AFTER} and {START}, saw {min(unknown)[:40]!r}")
    return tuple(parse_limit(given[name]) if name in given else None for name in (AFTER, START))  # type: ignore[return-value]


def limits_text(after_s: float | None, start_s: float | None) -> str:
    """Write the annotation; None is left out."""
    return ",".join(f"{name}={limit:g}" for name, limit in ((AFTER, after_s), (START, start_s)) if limit is not None)
