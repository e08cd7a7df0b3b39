"""
How far a Pod's worker was when it ended, as the Pod's next announcement carries it in `inplace.dev/phases`.

    text  = ",quiet=" milliseconds [ ",step=" digits [ ",high=" digits ] [ ",made=" steps ",pace=" tenths ] ]
            [ ",work=" tenths [ ",of=" rank ] ]
    quiet = how long the worker had made no step when it ended; 9999999 also stands for anything longer
    step  = its last step, without what `high` says; absent if nobody knows
    high  = the step divided by 10^7; absent where that is 0
    made  = so many steps were made after the first one that is known
    pace  = what one of them took on average, in tenths of a millisecond
    work  = the median of what the Pod's slowest rank itself worked on a step, without waiting, in the same unit
    of    = that rank's number; absent if it has none

    v1,announce=9,barrier=731,lift=812,kubelet=1180,view=64,at=4512078,quiet=4031,step=1200,made=400,pace=2004,work=980,of=17

All other numbers are those of one rank: the one with the lowest step, and of those the one that was quiet the longest.
What does not fit the digits is left out (`made` and `pace`, `work` and `of`) or cut (`quiet`). This module is pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from inplace.common.bare.typed import Final
from inplace.common.protocol.bounds import STEP_MAX
from inplace.common.protocol.errors import RemoteProtocolError
from inplace.common.protocol.last_progress import LastProgress
from inplace.common.wire.parts import VERSION
from inplace.common.wire.phases import DIGITS_MAX, MILLISECONDS_MAX, parse_numbers

_LOW: Final = 10**DIGITS_MAX
LONG_S: Final = 60.0  # where no step is told, so long a run is progress: it costs more than a restart (docs/adr/0021)
TENTHS_PER_S: Final = 10_000
BEGINNING: Final = ",quiet="  # a text without it carries no progress
_LONGEST: Final = ",quiet=9999999,step=9999999,high=99999,made=9999999,pace=9999999,work=9999999,of=9999999"
TEXT_BYTES_MAX: Final = len(_LONGEST)  # 88


def last_progress_text(progress: LastProgress) -> str:
    """Return the part of the annotation's value."""
    text = f"{BEGINNING}{round(min(max(progress.quiet_s, 0.0), MILLISECONDS_MAX / 1000) * 1000)}"
    if progress.step is not None and 0 <= progress.step <= STEP_MAX:
        high, low = divmod(progress.step, _LOW)
        text += f",step={low}" + (f",high={high}" if high else "")
        if progress.made is not None and 0 < progress.made < _LOW and (pace := _tenths(progress.pace_s)):
            text += f",made={progress.made},pace={pace}"
    if work := _tenths(progress.work_s):
        text += f",work={work}"
        if progress.work_rank is not None and 0 <= progress.work_rank < _LOW:
            text += f",of={progress.work_rank}"
    return text


def parse_last_progress(text: str) -> LastProgress | None:
    """Return what an annotation's value says of the worker; None if it says nothing.

    Raises:
        RemoteProtocolError: it does not follow the grammar (its writer is at fault).
    """
    begins = text.find(BEGINNING)
    if begins < 0:
        return None
    numbers = parse_numbers(VERSION + text[begins:])  # the phases before it are another reader's, and another time's
    quiet_s, low = numbers["quiet"] / 1000, numbers.get("step")
    step = None if low is None else numbers.get("high", 0) * _LOW + low
    if step is not None and step > STEP_MAX:
        raise RemoteProtocolError(f"phases: expected a step of at most {STEP_MAX}, saw {step}")
    made, pace_s, work_s = numbers.get("made"), _seconds(numbers, "pace"), _seconds(numbers, "work")
    if step is None or not made or pace_s is None:
        made = pace_s = None
    return LastProgress(step, quiet_s, made, pace_s, work_s, numbers.get("of") if work_s is not None else None)


def _tenths(seconds: float | None) -> int:
    """Return tenths of a millisecond; 0 for none, and for what does not fit."""
    tenths = 0 if seconds is None else round(min(max(seconds, 0.0), float(_LOW)) * TENTHS_PER_S)
    return tenths if tenths < _LOW else 0


def _seconds(numbers: Mapping[str, int], name: str) -> float | None:
    tenths = numbers.get(name)
    return tenths / TENTHS_PER_S if tenths else None
