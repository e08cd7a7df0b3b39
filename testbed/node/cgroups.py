"""The cgroups of a node: the same path in every hierarchy of cgroup v1.

Kubelet puts Pods below a path that must exist in all of them; the pids hierarchy is the one that tells who is there,
because no program moves between its groups by itself.
"""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from testbed.node.host import CGROUPS

DYING_S_MAX = 20.0
"""For rounds of killing: who forks in one leaves a child to the next, and a busy kernel takes a while to free both."""

SHARES = 1024 * (os.cpu_count() or 1)
"""What kubelet gives all Pods together on a machine of its own; the default would weigh a node like one process."""

_MEMBERS = CGROUPS / "pids"
_JOINED = (CGROUPS / "cpu", CGROUPS / "cpuacct", _MEMBERS)


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
    groups = " ".join(str(hierarchy / path.lstrip("/") / "cgroup.procs") for hierarchy in _JOINED)
    return ("sh", "-ec", 'for group in $0; do echo $$ > "$group"; done; exec "$@"', groups)


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
    until_s = time.monotonic() + DYING_S_MAX
    while time.monotonic() < until_s:
        alive = False
        for pid in members(path):
            if not _is_zombie(pid):
                alive = True
                _kill(pid)
        if not alive:
            return
        time.sleep(0.001)
    raise RuntimeError(
        f"expected SIGKILL to end everything in {path} within {DYING_S_MAX:g} s, saw {list(members(path))}"
    )


def cpu_s_by_part(path: str) -> dict[str, float]:
    """Return the CPU time that each part of a node has taken so far, with all that it has reaped.

    A cgroup's own count holds all that ever ran there (cgroup-v1/cpuacct.rst), so what is in no other part is the shims
    and the runtime that they start. Elsewhere processes are counted: proc_pid_stat(5), fields 14 to 17.
    """
    parts = dict.fromkeys(("kubelet", "containerd"), 0.0)
    for pid in members(f"{path}/system"):
        with suppress(FileNotFoundError, ProcessLookupError):
            words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            part = "kubelet" if words[1:2] == ["kubelet"] else Path(words[0]).name
            if part in parts:
                ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]
                parts[part] += sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
    whole, containers = (_usage_s(each) for each in (path, f"{path}/kubepods"))
    return parts | {"containers": containers, "shims_and_runc": whole - containers - sum(parts.values()), "node": whole}


def _usage_s(path: str) -> float:
    return int((CGROUPS / "cpuacct" / path.lstrip("/") / "cpuacct.usage").read_text()) / 1e9


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
