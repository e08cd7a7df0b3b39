"""
A guard's standby, where the guard keeps its container between two workers: depth `process`.

The guard has no event loop and no metrics; this class is what `Standby` needs of them. Only a
guard with `--standby` loads it.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from inplace.agent.worker.process_tree import lists_children
from inplace.agent.worker.spawn import spawn
from inplace.agent.worker.standby import Standby

if TYPE_CHECKING:
    from inplace.agent.report.log import Log


class GuardStandby:
    """The next run's process beside a guard's worker, see `Standby`.

    Args:
        command: the worker's argv.
        env: its environment, but for what an epoch adds.
        log: where events go.

    Attributes:
        by_s: when `go_on` has something to do, of the monotonic clock; None: after a message only.
    """

    def __init__(self, command: Sequence[str], env: Mapping[str, str], log: Log) -> None:
        self.standby_rss_bytes = 0  # said in a line of the log
        self._command = list(command)
        self._env = env
        self._callbacks: dict[int, Callable[[], None]] = {}
        self.by_s: float | None = None
        self._standby = Standby(readers=self, log=log, memory=self)
        self.ended, self.left_alone, self.end = self._standby.ended, self._standby.left_alone, self._standby.end

    def start(self, env: Mapping[str, str]) -> int:
        """Release the process that is held, or start one; return its id."""
        self.by_s = time.monotonic()
        return self._standby.start(self._spawn, env)

    def register(self, poll: select.poll) -> None:
        """Let the guard wait for messages."""
        for fd in self._callbacks:
            poll.register(fd, select.POLLIN)

    def read(self, fd: int) -> None:
        """Take in what there is; the descriptor may be closed by now."""
        if fd in self._callbacks:
            self._callbacks[fd]()
            self.by_s = time.monotonic()

    def go_on(self) -> None:
        """Do what is due."""
        now_s = time.monotonic()
        if self.by_s is not None and now_s >= self.by_s:
            wait_s = self._standby.go_on(self._spawn, now_s)
            self.by_s = None if wait_s is None else now_s + wait_s

    def add_reader(self, fd: int, callback: Callable[[], None]) -> None:
        """Call back whenever there is something to read."""
        self._callbacks[fd] = callback

    def remove_reader(self, fd: int) -> None:
        """Do so no more."""
        self._callbacks.pop(fd, None)

    def _spawn(self, env: Mapping[str, str]) -> int:
        return spawn(self._command, {**self._env, **env})


def standby_of(command: Sequence[str], env: Mapping[str, str], log: Log, *, stays: bool) -> GuardStandby | None:
    """Return what holds the next run's process; None, and a line, where nothing can be held.

    Args:
        command: the worker's argv.
        env: its environment, but for what an epoch adds.
        log: where events go.
        stays: the guard's container outlives its worker.
    """
    if stays and lists_children():
        return GuardStandby(command, env, log)
    missing = "a kernel that lists a process's children" if stays else "RESTART_DEPTH=process at the agent"
    log.warning("standby_unavailable", message=f"it needs {missing}", then="every start is an ordinary one")
    return None
