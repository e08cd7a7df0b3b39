"""A modelled group for benchmarks of commands, and what one run of a command costs."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from inplace.simulator.cluster.cluster import Cluster
from inplace.simulator.cluster.manifests import read_manifests, with_pods
from inplace.simulator.cluster.timeline import Timeline

REPOSITORY: Final = Path(__file__).parents[1]
NAME: Final = "train"
EXAMPLE: Final = REPOSITORY / "examples" / "train.yaml"
SETTLED_S_MAX: Final = 600.0
PODS_PER_NODE: Final = 100


@asynccontextmanager
async def trained_group(pods: int) -> AsyncIterator[tuple[Cluster, Timeline]]:
    """Yield a cluster over loopback HTTP whose one group, NAME, trains."""
    nodes = -(-pods // PODS_PER_NODE)
    async with Cluster(runtime="model", nodes=nodes, pods_per_node=PODS_PER_NODE, serve_http=True) as cluster:
        timeline = await cluster.trained(with_pods(read_manifests(EXAMPLE), pods), timeout_s=SETTLED_S_MAX)
        yield cluster, timeline


@dataclass(frozen=True, slots=True)
class CommandRun:
    """One run of a command.

    Args:
        lead_s: from exec to the last of its first lines; 0 if nobody waited for them.
        wall_s: from exec to exit.
        cpu_s: its own.
    """

    lead_s: float
    wall_s: float
    cpu_s: float
    output: str

    def figures(self) -> dict[str, float]:
        """Return its seconds."""
        lead = {"first_lines_s": self.lead_s} if self.lead_s else {}
        return lead | {"wall_s": self.wall_s, "cpu_s": self.cpu_s}


def inplace(*words: str) -> list[str]:
    """Return a command of ours."""
    return [sys.executable, "-m", "inplace.cli", *words]


def run_command(command: Sequence[str], kubeconfig: Path, lead: int = 0) -> CommandRun:
    """Run a command once, as a user does, and wait for its first lines and for its end."""
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["KUBECONFIG"] = str(kubeconfig)
    before_s, began_s = _children_cpu_s(), time.monotonic()
    with subprocess.Popen(command, cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        lines = [child.stdout.readline() for _ in range(lead)]
        lead_s = time.monotonic() - began_s if lead else 0.0
        lines += child.stdout
    assert child.returncode == 0, child.returncode
    return CommandRun(lead_s, time.monotonic() - began_s, _children_cpu_s() - before_s, "".join(lines))


def _children_cpu_s() -> float:
    """Return the seconds of CPU that ended child processes have used."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
