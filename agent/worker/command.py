"""
The worker's command, for those that execute it: a supervisor and a guard.

This module is light: it is part of the start of each guard.
"""

from __future__ import annotations

import os

from inplace.common.bare.typed import Final, Mapping

EPOCH: Final = "INPLACE_EPOCH"  # of the worker's environment: the epoch it runs in; "" when in-place restart is off
RESTART_COUNT: Final = "INPLACE_RESTART_COUNT"  # the same in every worker of the group: epoch - 1
LOCALE: Final = "LC_CTYPE"
ELASTIC_ERROR_FILE: Final = (
    "TORCHELASTIC_ERROR_FILE"  # torchelastic's: where a program leaves the exception that ends it
)
ELASTIC_FILE: Final = ".torchelastic.error"  # its name, in the folder of the ranks' progress files
NOT_EXECUTABLE: Final = 126  # exit codes, as a shell has them
NOT_FOUND: Final = 127


def epoch_variables(epoch: int | None) -> dict[str, str]:
    """Return what a worker's environment says of its epoch (None and 0: in-place restart is off)."""
    return {EPOCH: str(epoch or ""), RESTART_COUNT: str((epoch or 1) - 1)}


def restore_locale() -> None:
    """Give LC_CTYPE the value that the container has: in the locale C, Python sets another at its start (PEP 538)."""
    if LOCALE not in os.environ:
        return
    with open("/proc/self/environ", "rb") as file:  # noqa: PTH123 - pathlib costs 3 ms
        given = [word for word in file.read().split(b"\0") if word.startswith(b"LC_CTYPE=")]
    if given:
        os.environ[LOCALE] = os.fsdecode(given[0].partition(b"=")[2])
    else:
        del os.environ[LOCALE]


def find_program(name: str, env: Mapping[str, str]) -> str | None:
    """Return the path of a program as execvp would find it, None when it does not exist."""
    folders = [""] if "/" in name else env.get("PATH", os.defpath).split(":")
    paths = [f"{folder}/{name}" if folder else name for folder in folders]
    return next((path for path in paths if os.path.isfile(path)), None)  # noqa: PTH113 - pathlib costs 3 ms


def refuse_program(name: str, env: Mapping[str, str]) -> tuple[str, int] | None:
    """Return why a worker's program cannot be executed, and the exit code of a shell for that; None if it can."""
    path = find_program(name, env)
    if path is None:
        where = "a file" if "/" in name else f"a program in PATH ({env.get('PATH', os.defpath)})"
        return f"the worker's command: expected {where}, saw {name!r}", NOT_FOUND
    if not os.access(path, os.X_OK):
        return f"the worker's command: expected an executable file, saw {path!r}", NOT_EXECUTABLE
    return None
