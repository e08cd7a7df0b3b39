"""End what a guard's worker left, where the guard is not process 1, or stays."""

from __future__ import annotations

import os
import time

from inplace.agent.process_tree import kill_descendants
from inplace.common.typed import Final

SWEEP_S: Final = 0.005  # between two looks
SWEEPS_MAX: Final = 6000  # 30 s: what survives SIGKILL that long hangs in a driver


def sweep() -> bool:
    """Kill what the worker left, until there is no child, or for 30 s; say whether none is left."""
    for _ in range(SWEEPS_MAX):
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return True
        kill_descendants()
        time.sleep(SWEEP_S)
    return False
