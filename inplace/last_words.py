"""
Leave the exception that ends this process where the Pod's agent finds it: `.NAME.error` in INPLACE_PROGRESS_DIR.

The first use of `inplace.progress`, `busy`, `ready` or `save_requested` puts a hook before `sys.excepthook`. It does
nothing until an exception ends the main thread. Then it writes one line and calls the hook that was there before, which
prints the traceback as ever. NAME is that of the rank's progress file (inplace/rank_file.py).

    line = "v1 " epoch " " kind [ ": " first line of its message ]        epoch = INPLACE_EPOCH, or "-"

The agent cleans the line and hides secrets before it sends it. Nothing here ever raises. It needs Python 3.8 and os and
sys alone.
"""

from __future__ import annotations

import os
import sys

LINE_BYTES_MAX = 1024
SUFFIX = ".error"
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_previous = None


def install() -> None:
    """Put the hook before the one that is there, once a process."""
    global _previous
    if _previous is None:
        _previous = sys.excepthook
        sys.excepthook = _hook


def _hook(kind, error, trace) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001 - as sys.excepthook has it
    try:
        folder = os.environ.get("INPLACE_PROGRESS_DIR", "")
        is_standby = os.environ.get("INPLACE_STANDBY", "").startswith("wait")  # the file is the running worker's
        if folder and not is_standby and not issubclass(kind, KeyboardInterrupt):
            said = _first_line(error)
            _write(folder, f"{_name_of(kind)}: {said}" if said else _name_of(kind))
    except BaseException:  # noqa: BLE001, S110 - the traceback is what matters
        pass
    if _previous is not None:
        _previous(kind, error, trace)


def _write(folder: str, text: str) -> None:
    from inplace.rank_file import file_name

    epoch = os.environ.get("INPLACE_EPOCH") or "-"
    line = f"v1 {epoch} {text}".encode("utf-8", "replace")[: LINE_BYTES_MAX - 1]
    fd = os.open(os.path.join(folder, f".{file_name(os.environ, os.getpid())}{SUFFIX}"), _FLAGS, 0o644)  # noqa: PTH118
    try:
        os.write(fd, line + b"\n")
        os.fchmod(fd, 0o644)  # whatever the umask: the agent may be another user
    finally:
        os.close(fd)


def _name_of(kind: type) -> str:
    """Return the name that a traceback has."""
    module = kind.__module__
    return kind.__qualname__ if module in ("builtins", "__main__") else f"{module}.{kind.__qualname__}"


def _first_line(error: object) -> str:
    """Return the first line of the message that says something."""
    return next((line.strip() for line in str(error)[:8192].splitlines() if line.strip()), "")
