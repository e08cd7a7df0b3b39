"""
Kill every process of a cluster when the cluster's own process ends, also by SIGKILL.

Run as a script beside the cluster: `python -S reaper.py MARKER`. It waits for the end of its standard input,
which only the cluster's process holds open, and imports almost nothing, because it starts with every cluster.
"""

from __future__ import annotations

import os
import signal
import sys

SWEEPS_MAX = 50  # a process that forks while being swept is caught by a later sweep


def marked(marker: str) -> list[int]:
    """Return the processes whose environment holds `marker` (NAME=value); needs Linux's /proc."""
    wanted = marker.encode() + b"\0"
    found = []
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            with open(f"/proc/{entry.name}/environ", "rb") as environ:  # noqa: PTH123
                if wanted in environ.read():
                    found.append(int(entry.name))
        except OSError:
            continue  # the process ended meanwhile, or belongs to another user
    return found


def kill(pids: list[int]) -> None:
    """Send SIGKILL to each process; ignore processes that are gone."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def main() -> None:
    """Wait for the parent's end, then sweep."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.stdin.buffer.read()
    for _ in range(SWEEPS_MAX):
        pids = marked(sys.argv[1])
        if not pids:
            return
        kill(pids)


if __name__ == "__main__":
    main()
