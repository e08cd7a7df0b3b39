"""Find the processes that train below the agents of one group."""

from __future__ import annotations

from pathlib import Path

from inplace.simulator.cluster import reaper
from testbed.process_age import in_order_of_start

LAUNCHERS = ("torchrun", "inplace-agent", "guard")


def trainers(marker: str, module: str) -> list[list[int]]:
    """Return the processes of each Pod that run a module, the oldest first: a rank, and then its standby.

    Args:
        marker: NAME=value that stands in the environment of all processes of the group.
        module: the training script's; launchers and agents, which name it too, are left out.
    """
    found: dict[str, list[int]] = {}  # by standard output, which a Pod's processes share
    for pid in in_order_of_start(reaper.marked(marker)):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().rstrip("\0").split("\0")
            output = str(Path(f"/proc/{pid}/fd/1").readlink())
        except OSError:  # it ended
            continue
        if words[-2:] == ["-m", module] and not any(Path(word).name in LAUNCHERS for word in words):
            found.setdefault(output, []).append(pid)
    return list(found.values())
