"""
How far a Pod's worker was when it ended, as the Pod's next announcement carries it in `inplace.dev/phases`.

    text  = ",quiet=" milliseconds [ ",step=" digits [ ",high=" digits ] [ ",made=" steps ",pace=" tenths ] ]
    quiet = how long the worker had made no step when it ended; 9999999 also stands for anything longer
    step  = its last step, without what `high` says; absent if nobody knows
    high  = the step divided by 10^7; absent where that is 0
    made  = so many steps were made after the first one that is known
    pace  = what one of them took on average, in tenths of a millisecond

    v1,announce=9,barrier=731,lift=812,kubelet=1180,view=64,at=4512078,quiet=4031,step=1200,made=400,pace=2004

The numbers are those of one rank: the one with the lowest step, and of those the one that was quiet the longest. What
does not fit the digits is left out (`made` and `pace`) or cut (`quiet`). This module is pure.
"""

from __future__ import annotations

from inplace.common.bare.typed import Final
from inplace.common.protocol.errors import RemoteProtocolError
from inplace.common.protocol.stall import LastProgress
from inplace.common.wire.phases import DIGITS_MAX, MILLISECONDS_MAX, VERSION, parse_numbers

_LOW: Final = 10**DIGITS_MAX
STEP_MAX: Final = 10**12 - 1  # as common.wire.progress has it
LONG_S: Final = 60.0  # where no step is told, so long a run is progress: it costs more than a restart (docs/adr/0021)
TENTHS_PER_S: Final = 10_000
BEGINNING: Final = ",quiet="  # a text without it carries no progress
TEXT_BYTES_MAX: Final = len(",quiet=9999999,step=9999999,high=99999,made=9999999,pace=9999999")  # 64


def last_progress_text(progress: LastProgress) -> str:
    """Return the part of the annotation's value."""
    text = f"{BEGINNING}{round(min(max(progress.quiet_s, 0.0), MILLISECONDS_MAX / 1000) * 1000)}"
    if progress.step is None or not 0 <= progress.step <= STEP_MAX:
        return text
    high, low = divmod(progress.step, _LOW)
    text += f",step={low}" + (f",high={high}" if high else "")
    if progress.made is not None and progress.pace_s is not None:
        tenths = round(progress.pace_s * TENTHS_PER_S)
        if 0 < progress.made < _LOW and 0 < tenths < _LOW:
            text += f",made={progress.made},pace={tenths}"
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
    if low is None:
        return LastProgress(None, quiet_s)
    step, made, tenths = numbers.get("high", 0) * _LOW + low, numbers.get("made"), numbers.get("pace")
    if step > STEP_MAX:
        raise RemoteProtocolError(f"phases: expected a step of at most {STEP_MAX}, saw {step}")
    if not made or not tenths:
        return LastProgress(step, quiet_s)
    return LastProgress(step, quiet_s, made, tenths / TENTHS_PER_S)
