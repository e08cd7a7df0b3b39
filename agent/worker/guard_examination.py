"""The guard's command for a worker that hangs: `--on-stall`, in the worker's container."""

from __future__ import annotations

import time

from inplace.agent.worker.command import epoch_variables
from inplace.agent.worker.spawn import spawn
from inplace.agent.worker.stall_command import COMMAND_S_MAX, PID, SILENT_S, kill_tree, pid_to_examine, shell_words
from inplace.common.bare.typed import TYPE_CHECKING, Mapping
from inplace.common.protocol.link import Examine

if TYPE_CHECKING:
    from inplace.agent.report.log import Log


class Examination:
    """Runs the command, once for each worker that hangs.

    Args:
        log: where events go.

    Attributes:
        pid: of the command until it is reaped; 0 if it does not run.
        by_s: when it is killed, of the monotonic clock; None if it does not run, or is killed.
    """

    def __init__(self, command: str, env: Mapping[str, str], log: Log) -> None:
        self._command = command
        self._env = env
        self._log = log
        self.pid = 0
        self.by_s: float | None = None

    def begin(self, asked: Examine, main: int, epoch: int) -> bool:
        """Start the command; say whether it runs."""
        pid, problem = pid_to_examine(asked.pid, main)
        self._log.warning(
            "stall_examining", silent_s=asked.silent_s, command=self._command, pid=pid, message=problem or None
        )
        own = {**epoch_variables(epoch), PID: str(pid), SILENT_S: str(asked.silent_s)}
        try:
            self.pid = spawn(shell_words(self._command), {**self._env, **own})
        except OSError as error:
            self._log.warning("stall_examined", message=f"cannot execute /bin/sh: {error.strerror}")
            return False
        self.by_s = time.monotonic() + COMMAND_S_MAX
        return True

    def is_late(self) -> bool:
        """Say whether the command has to be killed now."""
        return self.by_s is not None and time.monotonic() >= self.by_s

    def cut(self, why: str) -> None:
        """Kill the command, if it runs; its end is reaped as any."""
        self.by_s = None
        if self.pid:
            self._log.info("stall_command_killed", why=why)
            kill_tree(self.pid)

    def ended(self) -> None:
        """Take note of its end."""
        self.pid, self.by_s = 0, None
