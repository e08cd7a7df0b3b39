"""
The command of `--on-stall`: it looks at a worker that hangs BEFORE the worker is ended, say to dump its stacks.

The worker's host runs it, in the worker's container, by /bin/sh. Its output is the container's. After COMMAND_S_MAX it
is killed with all its processes, so it holds a restart up for that long at most.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

from inplace.agent.worker.process_tree import descendants
from inplace.common.bare.typed import TYPE_CHECKING, Callable, Final, Mapping

if TYPE_CHECKING:
    from inplace.agent.report.log import Log

COMMAND_S_MAX: Final = 10.0
PID: Final = "INPLACE_STALL_PID"  # the command's environment
SILENT_S: Final = "INPLACE_STALL_SILENT_S"


class StallCommand:
    """One run of the command.

    Args:
        command: a shell's.
        said: the silent rank's process id as its progress file says, None if it says none.
        main: the worker's main process.
        silent_s: how long the rank has been silent.

    Attributes:
        pid: of the command.
        due_s: when it is killed, of the monotonic clock; None if it is.
    """

    def __init__(self, command: str, said: int | None, main: int, silent_s: float, log: Log) -> None:
        self._command = command
        self._silent_s = f"{silent_s:.0f}"
        self._examined, self._problem = pid_to_examine(said, main)
        self._log = log
        self._is_late = False
        self.pid = 0
        self.due_s: float | None = None

    def begin(self, spawn: Callable[[str, Mapping[str, str]], int], env: Mapping[str, str]) -> str:
        """Start the command, with `env` beside its environment; return why it does not run, "" if it does."""
        pid, silent_s = self._examined, self._silent_s
        message = self._problem or None
        self._log.warning("stall_examining", silent_s=int(silent_s), command=self._command, pid=pid, message=message)
        try:
            self.pid = spawn(self._command, {**env, PID: str(pid), SILENT_S: silent_s})
        except OSError as error:
            return f"cannot execute /bin/sh: {error.strerror}"
        self.due_s = time.monotonic() + COMMAND_S_MAX
        return ""

    def go_on(self, now_s: float) -> None:
        """Kill the command if its time is over; its end is reaped as any."""
        if self.due_s is not None and now_s >= self.due_s:
            self._is_late = True
            self.kill()

    def kill(self) -> None:
        """Kill the command; its end is reaped as any."""
        self.due_s = None
        kill_tree(self.pid)

    def problem_of(self, code: int) -> str:
        """Return what went wrong with a command that ended with this code, "" if nothing did."""
        if self._is_late:
            return f"it did not end within {COMMAND_S_MAX:g} s, and was killed"
        return self._problem if not code else f"it ended with exit code {code}; {self._problem}".rstrip("; ")


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
