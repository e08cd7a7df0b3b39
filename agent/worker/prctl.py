"""
Call functions of the C library that Python has no name for.

By `_ctypes`, the extension below `ctypes`: it loads in 0.3 ms and takes 0.4 MB; `ctypes` itself takes 4 ms, beside each
worker. It is loaded at the first call.
"""

from __future__ import annotations

import os

from inplace.common.bare.typed import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from inplace.agent.report.log import Log

PR_SET_PDEATHSIG: Final = 1
PR_SET_DUMPABLE: Final = 4
PR_SET_CHILD_SUBREAPER: Final = 36


def c_function(name: str) -> Any:
    """Return a function of the C library; it takes numbers and None, and returns a number.

    Raises:
        OSError: this Python has no `_ctypes`, or finds no such function.
    """
    try:
        from _ctypes import FUNCFLAG_CDECL, FUNCFLAG_USE_ERRNO, CFuncPtr, dlopen, dlsym
    except ImportError as error:
        raise OSError(0, str(error)) from error

    class Function(CFuncPtr):
        _flags_ = FUNCFLAG_CDECL | FUNCFLAG_USE_ERRNO

    program: Any = None  # with all that it has loaded
    return Function(dlsym(dlopen(program, 0), name))


def prctl(option: int, value: int) -> None:
    """Set one property of this process.

    Raises:
        OSError: the kernel refused, or cannot be asked.
    """
    if c_function("prctl")(option, value, 0, 0, 0) != 0:
        from _ctypes import get_errno

        number = get_errno()
        raise OSError(number, os.strerror(number))


def keep_to_itself(log: Log) -> None:
    """Let no other process of this user read or change this one, or take a descriptor of it.

    A program that it executes is open again, so a worker can be debugged. CAP_SYS_PTRACE opens all.

    Source: PR_SET_DUMPABLE(2const), ptrace(2) "Ptrace access mode checking".
    """
    try:
        prctl(PR_SET_DUMPABLE, 0)
    except OSError as error:
        then = "processes of this user can read this one, and speak for it"
        log.warning("process_open", message=f"cannot set PR_SET_DUMPABLE: {error}", then=then)
