"""A framework's example with `--standby`, and with a memory that outlives its ranks, in the demo's cluster."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from benchmarks.resume import gone_on_from, made
from benchmarks.systems import PODS, STANDBY, in_pods, keep_in_memory


async def restart_with_standbys(folder: Path, framework: str) -> int:
    """Kill a rank once every Pod's standby is ready; return how many of these are ranks of the next run."""
    async with in_pods(folder, framework=framework, example=framework, options=STANDBY) as group:
        await group.reach(PODS, 0, standbys=PODS)
        os.kill(group.ranks()[0], signal.SIGKILL)
        await group.reach(2 * PODS, 0)
        return sum(log.read_text().count('"standby_released"') for own in group.logs() for log in own)


async def go_on_from_memory(folder: Path, framework: str) -> None:
    """Kill a rank between two checkpoints, and check that all go on from a step in memory: at most one is lost."""
    async with in_pods(folder, framework=framework, example=framework, pods=2, change=keep_in_memory) as group:
        assert group.cluster is not None
        await group.reach(2, 2 * 13)
        os.kill(group.ranks()[0], signal.SIGKILL)
        last = made(group.texts())
        await group.reach(4, 0)
        assert last - 1 <= gone_on_from(group.texts()) <= last
        (restart,) = group.cluster.jobset(framework)["status"]["restartHistory"]
        assert (restart["resumeKind"], restart["resumeStep"]) == ("local", gone_on_from(group.texts()))
