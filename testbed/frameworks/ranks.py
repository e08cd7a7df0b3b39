"""Ranks of the examples: the environment of one that runs alone, and a group's processes that train."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from inplace.simulator.cluster import reaper

REPOSITORY = Path(__file__).parents[2]
LAUNCHERS = ("torchrun", "dlrover-run", "nvidia_resiliency_ext.fault_tolerance.launcher", "inplace-agent", "guard")


def rank_variables(rank: int, *, world: int, port: int, checkpoints: Path) -> dict[str, str]:
    """Return the environment in which a rank of the examples runs without a cluster, an agent and torchrun.

    Args:
        rank: counted from 0.
        world: how many ranks there are.
        port: of loopback, where rank 0 listens.
        checkpoints: this rank's own folder.
    """
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(REPOSITORY),
        "INPLACE_EPOCH": "1",
        "CHECKPOINT_DIR": str(checkpoints),
        "JAX_PLATFORMS": "cpu",
        "JOB_COMPLETION_INDEX": str(rank),
        "PODS_PER_JOB": str(world),
        "COORDINATOR_PORT": str(port),
        "RANK": str(rank),
        "WORLD_SIZE": str(world),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }


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


def in_order_of_start(pids: Iterable[int]) -> list[int]:
    """Return processes, the oldest first, without those that are gone; a process id does not tell: the numbers wrap."""
    born: list[tuple[int, int]] = []
    for pid in pids:
        with suppress(OSError):
            after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            born.append((int(after_name[19]), pid))  # field 22 of proc_pid_stat(5), in clock ticks
    return [pid for _, pid in sorted(born)]
