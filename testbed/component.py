"""Run one component of the control plane as a child process.

Guarantees: the child ends when asked, when this process dies (also by SIGKILL; `setpriv` from util-linux
arranges it), and never anything else ends: signals go through the handle of a process started here. Waiting
polls instead of using asyncio's child watcher, so that a component started under one event loop (a session
fixture) can be stopped under another. Deliberately no restart on failure: a component that exits is a
finding, and its log is in the error.
"""

import asyncio
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

POLL_S = 0.05
"""How late a state change may be noticed; 20 polls a second cost nothing beside a starting API server."""

STOP_GRACE_S = 10.0
"""From SIGTERM to SIGKILL. The API server needs 1.2 s; for a request that hangs it would wait 60 s."""

LOG_TAIL_LINES = 40
"""Enough for a Go panic's first goroutine or the flag error that explains an exit."""

CLOCK_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class ControlPlaneError(Exception):
    """A component failed; the message ends with the tail of its log."""


class Component:
    """Hold one child process, its command line and its log file; start it as often as needed."""

    def __init__(self, name: str, command: Sequence[str], directory: Path) -> None:
        self.name = name
        self.log_path = directory / f"{name}.log"
        self._command = tuple(command)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process; its output is appended to the log, so a restart keeps the history."""
        assert self._process is None, f"{self.name} is already started"
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                (*_die_with_parent(), *self._command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.log_path.parent,
                # A group of its own: Ctrl-C ends pytest, and pytest ends the components in order.
                start_new_session=True,
            )

    async def stop(self, *, kill: bool = False) -> None:
        """End the process and wait until it is gone: by SIGTERM, then by SIGKILL after STOP_GRACE_S.

        Args:
            kill: SIGKILL at once, as a crash or an out-of-memory kill would.
        """
        if self._process is None:
            return
        process, self._process = self._process, None
        process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
        deadline = time.monotonic() + STOP_GRACE_S
        try:
            # No event tells of a child's end under whichever loop happens to run.
            while process.poll() is None and time.monotonic() < deadline:  # noqa: ASYNC110
                await asyncio.sleep(POLL_S)
        finally:
            # Also when this task was cancelled: no path leaves the child behind. SIGKILL cannot be ignored.
            process.kill()
            process.wait()

    def pause(self) -> None:
        """Stop the process (SIGSTOP) until it is ended; it does no work in between."""
        self.check_alive()
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def check_alive(self) -> None:
        """Raise ControlPlaneError when the process has exited by itself."""
        if self.pid_or_none() is None:
            raise self.failure(f"expected it to run, saw it exit with status {self._status()}")

    def pid(self) -> int:
        """Return the process id.

        Raises:
            ControlPlaneError: the process has exited by itself.
        """
        self.check_alive()
        assert self._process is not None, f"{self.name} was never started"
        return self._process.pid

    def pid_or_none(self) -> int | None:
        """Return the process id, or None when there is no running process."""
        if self._process is None or self._process.poll() is not None:
            return None
        return self._process.pid

    def cpu_seconds(self) -> float:
        """Return user plus system time that the current process (not its predecessors) has used so far."""
        return cpu_seconds_of(self.pid())

    def failure(self, message: str) -> ControlPlaneError:
        """Return an error that names this component and ends with the tail of its log."""
        lines = self.log_path.read_text(errors="replace").splitlines() if self.log_path.exists() else []
        tail = "\n".join(lines[-LOG_TAIL_LINES:]) or "(empty)"
        return ControlPlaneError(f"{self.name}: {message}. The end of its log {self.log_path}:\n{tail}")

    def _status(self) -> str:
        return "none (never started)" if self._process is None else str(self._process.returncode)


def cpu_seconds_of(pid: int) -> float:
    """Return user plus system time that a process has used so far.

    Source: proc_pid_stat(5), fields 14 and 15; the fields before them are counted from the end of the command's name,
    which may itself contain spaces and parentheses.
    """
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS_PER_S


def _die_with_parent() -> tuple[str, ...]:
    """Return the words before a command that make the kernel kill it when this thread's process dies."""
    setpriv = shutil.which("setpriv")
    return (setpriv, "--pdeathsig", "KILL", "--") if setpriv else ()
