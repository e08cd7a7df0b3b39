"""
Let this rank answer when somebody asks where it is: on SIGURG, Python's `faulthandler` writes all its threads' stacks.

They go into a file in memory that has no path. Its name has this process's id. So whoever asks (`agent/stacks/look.py`)
finds it below /proc/PID/fd, and knows that this very program has a handler: an exec closes the file, and a forked child
has it under its parent's id. SIGURG does nothing in a process without a handler, so no question can end a process.
Where somebody else has a handler for it, nothing is changed, and this rank is not asked. docs/adr/0099

The handler needs no lock of the interpreter: it answers while a rank waits in a collective. This module runs under
Python 3.8, as `inplace.rank_file` does.
"""

from __future__ import annotations

import faulthandler
import fcntl
import os
from _signal import SIG_DFL, SIGURG, getsignal  # type: ignore[import-not-found]  # signal would load enum

NAME = "inplace-stacks-"  # and the process's id
_answers = 0  # the process that has registered; a forked child has not
_file = None  # keeps the descriptor open


def answer_questions() -> None:
    """Register the handler, once a process; whatever goes wrong, this rank is just not asked."""
    global _answers, _file
    if _answers == os.getpid():
        return
    try:
        if not _answers and getsignal(SIGURG) != SIG_DFL:
            return
        fd = os.memfd_create(f"{NAME}{os.getpid()}", os.MFD_CLOEXEC)
        _append(fd)
        file = open(fd, "wb", buffering=0)  # noqa: PTH123, SIM115 - a descriptor, and it stays open
        faulthandler.register(SIGURG, file=file, all_threads=True, chain=False)
    except (AttributeError, OSError, ValueError, RuntimeError):  # another system, or no descriptor left
        return
    _answers, _file = os.getpid(), file


def _append(fd: int) -> None:
    """Write at the end always: who asks empties the file first, so that it never grows."""
    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_APPEND)
