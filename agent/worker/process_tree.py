"""
Find and end every descendant of the worker, also those that left its process group or session.

Linux only. A process that loses its parent is adopted by the nearest reaper above it: process 1 of the container, or a
process that called PR_SET_CHILD_SUBREAPER. The guard is that reaper. So the kernel can tell without a race whether a
descendant is left: a reaper without children has no descendants.

A standby's session can be spared (`agent.worker.standby`), and an agent, which has no children. No process of the
worker can get into that session, or below these.

Source: prctl(2) PR_SET_CHILD_SUBREAPER, proc(5) /proc/pid/task/tid/children and /proc/pid/stat, kill(2).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from typing import Final

from inplace.agent.settings.exit_code import ExitCode, StartError
from inplace.agent.worker.prctl import PR_SET_CHILD_SUBREAPER, prctl

STUCK_S: Final = 30.0  # a process that survives SIGKILL this long hangs in a driver; only a new Pod helps
_RESCANS_MAX: Final = 20  # in one go; a tree that grows faster is looked at again after a pause


class ReaperError(StartError):
    """Orphans cannot be adopted here, so a worker's child could escape."""

    event = "reaper_refused"
    code = ExitCode.CONFIG


def become_reaper() -> None:
    """Adopt from now on every orphan below this process.

    Raises:
        ReaperError: the kernel refused, or this Python cannot ask it.
    """
    if os.getpid() == 1:
        return  # process 1 of a PID namespace adopts anyway
    try:
        prctl(PR_SET_CHILD_SUBREAPER, 1)
    except OSError as error:
        raise ReaperError(
            f"expected to be process 1 of the container, or to adopt orphans (PR_SET_CHILD_SUBREAPER), saw {error}"
        ) from error


def lists_children() -> bool:
    """Say whether the kernel lists a process's children; it needs CONFIG_PROC_CHILDREN."""
    return os.path.exists(f"/proc/self/task/{os.getpid()}/children")  # noqa: PTH110


def kill_descendants(spared: Collection[int] = ()) -> int:
    """Send SIGKILL to every process below this one, with its process group; return how many were seen.

    Args:
        spared: processes that are left alone, each with its session if it leads one, and with all below.

    A group dies as a whole, also while it forks. Who forks into a new group meanwhile is seen by the next scan, at the
    latest by the next call: only a reaper without children is done.
    """
    killed: set[int] = set()
    for _ in range(_RESCANS_MAX):
        found = set(descendants(spared=spared)) - killed
        if not found:
            break
        for pid in found:
            _kill_group_of(pid)
        killed |= found
    return len(killed)


def is_alone_with(spared: Collection[int]) -> bool:
    """Say whether every child of this process is spared (as of `kill_descendants`): no other descendant is left then.

    The kernel's list is exact for the thread that reaps: children come at its end, and leave only by the reaping.
    """
    return all(_is_spared(pid, spared) for pid in _children(os.getpid()))


def stop_session(session: int) -> bool:
    """Send SIGSTOP to every process of a session below this one, and to all below those; say whether all took it.

    A process that has the signal forks no more, so what a scan does not find was stopped before.
    """
    stopped: set[int] = set()
    for _ in range(_RESCANS_MAX):
        found = set(_members(session)) - stopped
        if not found:
            return True
        _send(found, signal.SIGSTOP)
        stopped |= found
    return False


def continue_session(session: int) -> None:
    """Send SIGCONT to every process of a session below this one, and to all below those."""
    _send(_members(session), signal.SIGCONT)


def kill_adopted(session: int) -> None:
    """Send SIGKILL to each child of this process that is of this session, with its group."""
    for pid in _children(os.getpid()):
        if _session_of(pid) == session:
            _kill_group_of(pid)


def descendants(root: int = 0, spared: Collection[int] = ()) -> Iterator[int]:
    """Yield every process below `root` (0: this one) that has not been reaped, in no certain order.

    Who is spared (as of `kill_descendants`) is left out; that needs `lists_children`.
    """
    root = root or os.getpid()
    try:
        waiting = list(_children(root))
    except ProcessLookupError:
        return
    except FileNotFoundError:  # `root` is gone, or a kernel without CONFIG_PROC_CHILDREN
        yield from _below(root, dict(_parents()))
        return
    while waiting:
        pid = waiting.pop()
        if _is_spared(pid, spared):
            continue
        yield pid
        try:
            waiting += _children(pid)
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended meanwhile, and its children came to us


def _is_spared(pid: int, spared: Collection[int]) -> bool:
    return bool(spared) and (pid in spared or _session_of(pid) in spared)


def _members(session: int) -> Iterator[int]:
    for pid in _children(os.getpid()):
        if _session_of(pid) == session:
            yield pid
            yield from descendants(pid)


def _send(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):  # gone, or another user's
            os.kill(pid, number)


def _kill_group_of(pid: int) -> None:
    for kill, number in ((os.killpg, _group_of(pid)), (os.kill, pid)):
        if number:
            try:
                kill(number, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue  # gone, or another user's: that one is still counted by whoever waits for it


def _group_of(pid: int) -> int:
    """Return the process group, 0 when it is our own or not known any more."""
    try:
        group = os.getpgid(pid)
    except ProcessLookupError:
        return 0
    return 0 if group == os.getpgrp() else group


def _session_of(pid: int) -> int:
    """Return the session, 0 when the process is gone."""
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return 0


def _children(pid: int) -> Iterator[int]:
    """Yield the children of a process's threads, the first thread's last: it inherits those of a thread that ends.

    Raises:
        FileNotFoundError, ProcessLookupError: the process is gone, or the kernel keeps no list.
    """
    threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - pathlib costs 3 ms
    for thread in sorted(threads, key=str(pid).__eq__):
        try:
            with open(f"/proc/{pid}/task/{thread}/children", encoding="ascii") as children:  # noqa: PTH123
                found = children.read().split()
        except (FileNotFoundError, ProcessLookupError):
            if thread == str(pid):
                raise
            continue  # it ended meanwhile
        yield from map(int, found)


def _parents() -> Iterator[tuple[int, int]]:
    """Yield (process, parent) for everything in /proc."""
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as stat:  # noqa: PTH123
                    yield int(name), int(stat.read().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue


def _below(root: int, parents: dict[int, int]) -> Iterable[int]:
    """Yield what is below `root` in a table of parents."""
    found = {root}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
        yield from more
