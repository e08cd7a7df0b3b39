"""
A limit of the watchdog as a text: of an option, a variable, or an annotation of the JobSet. Pure.

Agents obey it, the controller says what is wrong with an annotation, and `inplace lint` says so before both.
"""

from __future__ import annotations

from inplace.common.bare.typed import Final

LIMIT_S_MIN: Final = 0.5  # the agent looks ten times a second at most, and a busy machine delays a step by that much
LIMIT_S_MAX: Final = 604_800.0  # a week, as a busy phase
EXPECTED: Final = f"seconds from {LIMIT_S_MIN:g} to {LIMIT_S_MAX:g}, or 0 for off"


def parse_limit(text: str) -> float | None:
    """Return a limit in seconds; None for off.

    Raises:
        ValueError: it is no number of the range (its writer is at fault).
    """
    value = float(text)
    if value == 0.0:
        return None
    if LIMIT_S_MIN <= value <= LIMIT_S_MAX:
        return value
    raise ValueError(f"expected {EXPECTED}, saw {text[:40]!r}")
