"""A framework's example with `--standby`, in the demo's cluster."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from benchmarks.frameworks import PODS, STANDBY, in_pods


async def restart_with_standbys(folder: Path, framework: str) -> int:
    """Kill a rank once every Pod's standby is ready; return how many of these are ranks of the next run."""
    async with in_pods(folder, framework=framework, example=framework, options=STANDBY) as group:
        await group.reach(PODS, 0, standbys=PODS)
        os.kill(group.ranks()[0], signal.SIGKILL)
        await group.reach(2 * PODS, 0)
        return sum(log.read_text().count('"standby_released"') for own in group.logs() for log in own)
