"""
Measure how long a group waits for Pods that have lost their place: drained, on a cordoned node, on a dead node.

    python -m benchmarks.places [--json] [--rounds 1] [--scene drained --scene cordoned ...]

Real kube-apiserver, Job controller, scheduler, kubelets, our controller and our images, all on this machine, inside a
capsule that leaves nothing behind (see benchmarks/node.py). Workers record their starts on the machine's monotonic
clock; what the API server shows is timed by a watch. Images are on every node before, but in `dead_node_pull`: there a
node has to pull 1 GB, over a network that is this machine's memory.

A node is given up as by Kubernetes' defaults, some 40 to 50 s after its death. The verdict is its taint
`unreachable:NoExecute`; from there the seconds of the dead node's scenes count.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from benchmarks.figures import Figures, flags
from benchmarks.lost_places import (
    DRAINED,
    Moments,
    cordoned,
    dead_node,
    dead_node_hangs,
    dead_node_pull,
    drained,
    plain_job,
)
from benchmarks.spared_places import member, moved, moved_together, spared_dead_node, spared_drained
from inplace.common.protocol.lease import LENGTH_S_MIN
from testbed.binaries import find_binaries
from testbed.go_programs import RUNTIME
from testbed.node import archives, capsule, prepare, settings
from testbed.node.cluster import Cluster, running_cluster

Scene = Callable[[Cluster], Awaitable[Moments]]
SCENES: Final[Mapping[str, Scene]] = {
    "drained": drained,
    "plain_job": plain_job,
    "cordoned": cordoned,
    "dead_node": dead_node,
    "dead_node_pull": dead_node_pull,
    "dead_node_hangs": dead_node_hangs,
    "member": member,
    "spared_drained": spared_drained,
    "spared_dead_node": spared_dead_node,
    "moved": moved,
    "moved_together": moved_together,
}
WHAT: Final = {
    "drained": f"{DRAINED} of {2 * DRAINED} Pods of one Job deleted at once: from the deletion",
    "plain_job": "the same, a Job without any of ours: from the deletion",
    "cordoned": "a worker dies on a cordoned node: from its death",
    "dead_node": f"a node dies and its peers fail, leases of {LENGTH_S_MIN} s: from Kubernetes' verdict",
    "dead_node_pull": "the same, and the node must pull an image of 1 GB: from Kubernetes' verdict",
    "dead_node_hangs": "a dead node, and the peers train on: from Kubernetes' verdict",
    "member": f"one of {2 * DRAINED} members deleted, 1 spare: from the deletion",
    "spared_drained": f"{DRAINED} of {2 * DRAINED} members deleted at once, {DRAINED} spares: from the deletion",
    "spared_dead_node": "as dead_node, with a spare on a third node: from Kubernetes' verdict",
    "moved": "the node of rank 0 is cordoned, and its group saves; 2 members, 1 spare: from the cordon",
    "moved_together": f"{DRAINED} of {3 * DRAINED} nodes cordoned together, drained later: from the cordon",
}

PAIRS: Final = (
    ("drained", "plain_job"),
    ("dead_node_pull", "dead_node"),
    ("member", "drained"),
    ("spared_drained", "drained"),
    ("spared_dead_node", "dead_node"),
    ("moved", "cordoned"),
    ("moved_together", "cordoned"),
)


def figures_of(scenes: Sequence[str], rounds: int, load: float) -> Figures:
    """Return the report of no moments yet."""
    machine = f"{os.cpu_count()} cores for everything, load {load:.2f} before; tuned: {', '.join(settings.TUNED)}"
    return Figures("\n".join((f"{rounds} rounds, {machine}", *(f"{scene}: {WHAT[scene]}" for scene in scenes))), PAIRS)


async def measure(scenes: Sequence[str], rounds: int, figures: Figures) -> None:
    """Add the moments of each round of each scene."""
    folder = Path(tempfile.mkdtemp(prefix="cluster-"))
    async with running_cluster(
        find_binaries(), programs=RUNTIME.build(), images=archives.build(), folder=folder
    ) as cluster:
        for _ in range(rounds):
            for scene in scenes:
                moments = await SCENES[scene](cluster)
                figures.add(scene, {f"{name}_s": moment_s for name, moment_s in moments.items()})
                print(f"{scene}: {moments}", file=sys.stderr)


def main() -> int:
    """Measure and print; outside a capsule, prepare everything and begin again inside one."""
    parser = flags(__doc__, rounds=1)
    parser.add_argument("--scene", action="append", choices=tuple(SCENES), help="default: all")
    options = parser.parse_args()
    if not capsule.inside():
        return prepare.main() or capsule.run((sys.executable, "-m", __spec__.name, *sys.argv[1:]))
    scenes = options.scene or tuple(SCENES)
    figures = figures_of(scenes, options.rounds, os.getloadavg()[0])
    asyncio.run(measure(scenes, options.rounds, figures))
    figures.show(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
