"""
The worker's command, for the guard, which executes it.

This module is light: it is part of the start of each guard.
"""

from __future__ import annotations

import os

from inplace.common.bare.typed import Final, Mapping, Sequence

EPOCH: Final = "INPLACE_EPOCH"  # of the worker's environment: the epoch it runs in; "" when in-place restart is off
RESTART_COUNT: Final = "INPLACE_RESTART_COUNT"  # the same in every worker of the group: epoch - 1
PROGRESS_DIR: Final = "INPLACE_PROGRESS_DIR"  # where the worker's ranks say how far they are
RESUME_STEP: Final = "INPLACE_RESUME_STEP"  # from which step the group goes on; not set where nobody can say
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


def run_variables(epoch: int, progress: str, step: int | None = None) -> dict[str, str]:
    """Return what each run's environment has beside the guard's own: epoch, folder of progress, step to go on from."""
    own = epoch_variables(epoch)
    if step is not None:
        own[RESUME_STEP] = str(step)
    if os.path.isdir(progress):  # noqa: PTH112 - pathlib costs 3 ms
        own[PROGRESS_DIR] = progress
        own[ELASTIC_ERROR_FILE] = f"{progress}/{ELASTIC_FILE}"
    return own


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


def hide_command(command: Sequence[str]) -> None:
    """Take the worker's command out of this process's own command line, which ends with it.

    A launch script that ends leftovers by name (`pkill -f train.py`) would end the worker's parent as well. Where the
    kernel keeps the command line to itself, it stays as it is.

    Source: proc_pid_stat(5), arg_end; proc_pid_mem(5).
    """
    words = b"".join(os.fsencode(word) + b"\0" for word in command)
    try:  # noqa: SIM105 - contextlib is dear
        _overwrite_arguments(words)
    except (OSError, ValueError, IndexError):
        pass


def _overwrite_arguments(words: bytes) -> None:
    with open("/proc/self/stat", "rb") as file:  # noqa: PTH123 - pathlib costs 3 ms
        end = int(file.read().rpartition(b")")[2].split()[46])
    with open("/proc/self/mem", "r+b", buffering=0) as memory:  # noqa: PTH123
        memory.seek(end - len(words))
        if memory.read(len(words)) == words:
            memory.seek(end - len(words))
            memory.write(bytes(len(words)))


def find_program(name: str, env: Mapping[str, str]) -> str | None:
    """Return the path of a program as execvp would find it, None when it does not exist."""
    folders = [""] if "/" in name else env.get("PATH", os.defpath).split(":")
    paths = [f"{folder}/{name}" if folder else name for folder in folders]
    return next((path for path in paths if os.path.isfile(path)), None)  # noqa: PTH113 - pathlib costs 3 ms
