"""The largest numbers that programs tell each other, each with its reason, and the one reader of a decimal number."""

from __future__ import annotations

from inplace.common.bare.typed import Final

INT32_MAX: Final = 2**31 - 1  # an epoch is a Kubernetes int32
CODE_MAX: Final = 255  # an exit code
STEP_MAX: Final = 10**12 - 1  # 31 years at 1,000 steps a second; bounds the annotation that carries it
BUSY_S_MAX: Final = 604_800  # a week: no busy phase holds back the watchdog for longer
REQUEST_MAX: Final = 10**15 - 1  # a request's id is its Unix time in milliseconds; this is the year 33658


def decimal(digits: str | bytes, most: int) -> int | None:
    """Return a decimal number of ASCII digits in [0, most]; None for anything else."""
    if not (digits.isascii() and digits.isdigit()) or len(digits) > len(str(most)):
        return None
    number = int(digits)
    return number if number <= most else None
