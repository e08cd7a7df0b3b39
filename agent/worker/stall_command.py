"""
The command of `--on-stall`: it looks at a worker that hangs BEFORE the worker is ended, say to dump its stacks.

A supervisor and a guard run it, in the worker's container, by /bin/sh. Its output is the container's. After
COMMAND_S_MAX it is killed with all its processes, so it holds a restart up for that long at most.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress

from inplace.agent.worker.process_tree import descendants
from inplace.common.bare.typed import Final

COMMAND_S_MAX: Final = 10.0
PID: Final = "INPLACE_STALL_PID"  # the command's environment
SILENT_S: Final = "INPLACE_STALL_SILENT_S"
RANK: Final = "INPLACE_STALL_RANK"  # a supervisor's command alone
STEP: Final = "INPLACE_STALL_STEP"


def shell_words(command: str) -> list[str]:
    """Return the argv that runs a command."""
    return ["/bin/sh", "-c", command]


def pid_to_examine(said: int | None, main: int) -> tuple[int, str]:
    """Return the process to look at, and what is wrong with the one that was said ("" when nothing is).

    Args:
        said: the silent rank's process id as its progress file says, which any process may have written; None if it
            says none.
        main: the worker's main process, a child of this one.
    """
    if not said or said == main:
        return main, ""
    if said in descendants():
        return said, ""
    return main, f"expected a process of the worker, saw {said} in the progress file; the main process is taken"


def kill_tree(root: int) -> None:
    """Send SIGKILL to a child that leads its process group, and to all below it."""
    below = list(descendants(root))
    for kill, number in ((os.killpg, root), *((os.kill, pid) for pid in below)):
        with suppress(ProcessLookupError, PermissionError):  # gone, or another user's
            kill(number, signal.SIGKILL)
