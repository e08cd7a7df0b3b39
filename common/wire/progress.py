"""
The line of a progress file: how far one rank is.

    line  = "v1" SP epoch SP step SP pid [ SP state ] *SP LF    e.g. v1 3 1200 77 checkpoint 600
    epoch = 1 to 10 digits, an int32 >= 1; "-" when the writer does not know it
    step  = 1 to 12 digits; "-" before the first step; "?" for a step without a number
    pid   = 1 to 10 digits, as the writer sees itself
    state = "ended"                  the process exits by itself
          / name SP seconds          a busy phase: 1 to 16 letters, digits, "_" and "-"; 1 to 604800
    At most 64 bytes in all.

`inplace.progress` writes such lines (inplace/rank_file.py). Any other program may write its step alone, as 1 to 12
digits, or anything: that its file changes is progress, and what cannot be read is a step without number. So nothing
that a training script can write is an error here. This module is pure.
"""

from __future__ import annotations

from inplace.common.bare.record import record
from inplace.common.bare.typed import Final
from inplace.common.protocol.bounds import BUSY_S_MAX, INT32_MAX, STEP_MAX, decimal

VERSION: Final = b"v1"
LINE_BYTES_MAX: Final = 64  # what is read of a file, also of one that never ends
BUSY_NAME_CHARACTERS_MAX: Final = 16
_NUMBER_DIGITS_MAX: Final = 10
_SAFE: Final = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


@record
class ProgressLine:
    """One rank, as its file shows it.

    Args:
        epoch: of the worker that wrote it, int32 >= 1; None when it does not say.
        step: 0 to STEP_MAX; None when there is no number.
        begun: the rank made a step, or is a program that says nothing about that.
        pid: of the writer in its own PID namespace; None when it does not say.
        busy: the busy phase's name; "" outside of one.
        busy_s_max: the busy phase's limit; 0 outside of one.
        ended: the rank's process exits by itself; no step comes any more.
    """

    epoch: int | None = None
    step: int | None = None
    begun: bool = True
    pid: int | None = None
    busy: str = ""
    busy_s_max: int = 0
    ended: bool = False


UNKNOWN: Final = ProgressLine()  # a rank that lives, at a step that nobody can tell


def parse_progress(content: bytes) -> ProgressLine:
    """Return what a file's content says; what follows no grammar is UNKNOWN, and so is a longer content."""
    if len(content) > LINE_BYTES_MAX:
        return UNKNOWN
    if content.startswith(VERSION + b" "):
        return _parse_line(content) or UNKNOWN
    step = decimal(content.rstrip(b" \t\r\n"), STEP_MAX)
    return UNKNOWN if step is None else ProgressLine(step=step)


def _parse_line(content: bytes) -> ProgressLine | None:
    """Read a line of the grammar; None when it is none."""
    if not content.endswith(b"\n"):
        return None
    _, *words = content[:-1].rstrip(b" ").split(b" ")
    if not 3 <= len(words) <= 5:
        return None
    epoch = None if words[0] == b"-" else decimal(words[0], INT32_MAX)
    step = None if words[1] in (b"-", b"?") else decimal(words[1], STEP_MAX)
    pid = decimal(words[2], 10**_NUMBER_DIGITS_MAX - 1)
    if (epoch is None) != (words[0] == b"-") or epoch == 0 or pid is None:
        return None
    if step is None and words[1] not in (b"-", b"?"):
        return None
    begun = words[1] != b"-"
    match words[3:]:
        case []:
            return ProgressLine(epoch, step, begun, pid)
        case [b"ended"]:
            return ProgressLine(epoch, step, begun, pid, ended=True)
        case [name, seconds] if 1 <= len(name) <= BUSY_NAME_CHARACTERS_MAX and _SAFE.issuperset(name):
            busy_s_max = decimal(seconds, BUSY_S_MAX)
            return ProgressLine(epoch, step, begun, pid, name.decode("ascii"), busy_s_max) if busy_s_max else None
    return None
