"""
End the processes that the worker of a dead supervisor left in this Pod, BEFORE the next supervisor announces.

When a supervisor is killed, its worker's main process dies with it (`agent.worker.spawn`), but that process's children
live on under another parent. Only their environment shows that they belong to the worker: each worker gets
INPLACE_SUPERVISOR with the Pod, the process id and the start time of its supervisor. A process that names this Pod and
a dead supervisor is a leftover.

Process 1 of a container needs none of this: no process of a container outlives it. Source: proc_pid_environ(5),
proc_pid_stat(5).
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from inplace.agent.settings.exit_code import ExitCode, StartError
from inplace.agent.worker.process_tree import STUCK_S, ReaperError, lists_children

if TYPE_CHECKING:
    from inplace.agent.report.log import Log

SUPERVISOR: Final = "INPLACE_SUPERVISOR"
_PAUSE_S: Final = 0.005
_ENDED: Final = (b"Z", b"X")  # states of a process that only waits to be reaped


class LeftoversError(StartError):
    """Processes of an earlier worker survive SIGKILL."""

    event = "worker_stuck"
    code = ExitCode.WORKER_STUCK


def supervisor_mark(env: Mapping[str, str]) -> str:
    """Return the value of INPLACE_SUPERVISOR for this process's workers."""
    return f"{_pod(env)}/{os.getpid()}/{_started(os.getpid())}"


def end_what_was_left(env: Mapping[str, str], log: Log) -> None:
    """Let this guard's agent announce: nothing is left of an earlier worker, and the next can be told from the agent.

    Raises:
        ReaperError: it cannot.
        LeftoversError: one survived SIGKILL for STUCK_S seconds.
    """
    if not lists_children():
        raise ReaperError("expected a kernel that lists a process's children (CONFIG_PROC_CHILDREN), saw none")
    seen: set[int] = set()
    began_s = time.monotonic()
    while os.getpid() != 1 and (found := set(leftovers(env))):  # process 1 had no other before
        if time.monotonic() - began_s > STUCK_S:
            raise LeftoversError(f"processes {sorted(found)} of a dead supervisor survive SIGKILL for {STUCK_S:g} s")
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        seen |= found
        time.sleep(_PAUSE_S)
    if seen:
        log.warning("leftovers_killed", message=f"{len(seen)} processes of a supervisor that was killed ran on")


def leftovers(env: Mapping[str, str]) -> Iterator[int]:
    """Yield every process of this Pod whose supervisor is gone."""
    prefix = f"{SUPERVISOR}={_pod(env)}/".encode()
    for name in os.listdir("/proc"):  # noqa: PTH208 - pathlib costs 3 ms
        if not name.isdigit():
            continue
        for variable in _read(f"/proc/{name}/environ").split(b"\0"):
            if variable.startswith(prefix):
                supervisor, _, started = variable[len(prefix) :].partition(b"/")
                if not supervisor.isdigit() or str(_started(int(supervisor))).encode() != started:
                    yield int(name)


def _pod(env: Mapping[str, str]) -> str:
    return f"{env.get('NAMESPACE', '')}/{env.get('POD_NAME', '')}"


def _started(pid: int) -> int:
    """Return the clock tick at which a process began, 0 when it ended."""
    state, *fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split() or [b"X"]
    return 0 if state in _ENDED else int(fields[18])


def _read(path: str) -> bytes:
    """Return a file of /proc, b"" when its process ended or is another user's."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            return file.read()
    except OSError:
        return b""
