"""The cgroups of a node: the same path in every hierarchy of cgroup v1.

Kubelet puts Pods below a path that must exist in all of them; the pids hierarchy is the one that tells who is there,
because no program moves between its groups by itself.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tests.cluster.node.host import CGROUPS

PASSES_MAX = 100
"""Rounds of killing: a process may fork in one, but its child is found in the next. A fork bomb would need more."""

SHARES = 1024 * (os.cpu_count() or 1)
"""What kubelet gives all Pods together on a machine of its own; the default would weigh a node like one process."""

_MEMBERS = CGROUPS / "pids"
_JOINED = (CGROUPS / "cpu", _MEMBERS)


def make(path: str) -> None:
    """Make the cgroup in every hierarchy."""
    for hierarchy in _hierarchies():
        (hierarchy / path.lstrip("/")).mkdir(exist_ok=True)
    (CGROUPS / "cpu" / path.lstrip("/") / "cpu.shares").write_text(str(SHARES))


def remove(path: str) -> bool:
    """Remove the cgroup and all below it; say whether nothing is left (what still has processes stays)."""
    gone = True
    for hierarchy in _hierarchies():
        for folder, _, _ in os.walk(hierarchy / path.lstrip("/"), topdown=False):
            try:
                Path(folder).rmdir()
            except OSError:
                gone = False
    return gone


def names(pattern: str) -> list[str]:
    """Return the cgroups at the top that match a pattern such as /inplace-*."""
    return [f"/{found.name}" for found in _MEMBERS.glob(pattern.lstrip("/"))]


def joining(path: str) -> tuple[str, ...]:
    """Return the words before a command that put its process, and all it starts, into the cgroup."""
    cpu, pids = (str(hierarchy / path.lstrip("/") / "cgroup.procs") for hierarchy in _JOINED)
    return ("sh", "-c", 'echo $$ > "$0" && echo $$ > "$1" && shift && exec "$@"', cpu, pids)


def members(path: str) -> Iterator[int]:
    """Yield the processes in the cgroup and all below it."""
    for folder, _, _ in os.walk(_MEMBERS / path.lstrip("/")):
        try:
            yield from map(int, (Path(folder) / "cgroup.procs").read_text().split())
        except FileNotFoundError:  # removed since it was listed
            continue


def kill(path: str) -> None:
    """Kill everything in the cgroup, as a power cut would; return when nothing is left.

    Raises:
        RuntimeError: something there survives SIGKILL.
    """
    for _ in range(PASSES_MAX):
        alive = False
        for pid in members(path):
            if not _is_zombie(pid):
                alive = True
                _kill(pid)
        if not alive:
            return
    raise RuntimeError(f"expected SIGKILL to end everything in {path}, saw {list(members(path))}")


def cpu_s(path: str) -> float:
    """Return the CPU time of the processes below a path, and of all that they have reaped: containers that ended too.

    Source: proc_pid_stat(5), fields 14 to 17.
    """
    ticks = 0
    for pid in members(path):
        with suppress(FileNotFoundError, ProcessLookupError):
            ticks += sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def of_container(path: str, container_id: str) -> Path | None:
    """Return the folder of one container's cgroup below the path, or None when it has none (any more)."""
    return next((Path(f) for f, _, _ in os.walk(_MEMBERS / path.lstrip("/")) if f.endswith(container_id)), None)


def _hierarchies() -> list[Path]:
    return [folder for folder in CGROUPS.iterdir() if (folder / "cgroup.procs").exists() and not folder.is_symlink()]


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in {"Z", "X"}
    except (FileNotFoundError, ProcessLookupError):
        return True
