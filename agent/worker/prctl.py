"""
Call prctl(2) through ctypes; ctypes takes 4 ms to load and is loaded at the first call.

Process 1 of a container never calls it.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any, Final

PR_SET_PDEATHSIG: Final = 1
PR_SET_CHILD_SUBREAPER: Final = 36


@cache
def libc() -> Any:
    """Return the C library.

    Raises:
        OSError: this Python has no ctypes, or finds no C library.
    """
    try:
        import ctypes

        return ctypes.CDLL(None, use_errno=True)
    except (ImportError, AttributeError) as error:
        raise OSError(0, str(error)) from error


def prctl(option: int, value: int) -> None:
    """Set one property of this process.

    Raises:
        OSError: the kernel refused, or cannot be asked.
    """
    import ctypes

    if libc().prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
