"""End what a guard's worker left, where the guard is not process 1, or stays."""

from __future__ import annotations

import os
import time

from inplace.agent.worker.process_tree import is_alone_with, kill_descendants
from inplace.common.bare.typed import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from inplace.agent.worker.guard_standby import GuardStandby

SWEEP_S: Final = 0.005  # between two looks
SWEEPS_MAX: Final = 6000  # 30 s: what survives SIGKILL that long hangs in a driver


def sweep(standby: GuardStandby | None = None) -> bool:
    """Kill what the worker left, until there is no child but a standby that waits, or for 30 s; say whether none is."""
    for _ in range(SWEEPS_MAX):
        try:
            while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                if standby is not None:
                    standby.ended(ended.si_pid, ended.si_status)
                os.waitpid(ended.si_pid, 0)
        except ChildProcessError:
            return True
        spared = standby.left_alone() if standby is not None else 0
        if spared and is_alone_with(spared):
            return True
        kill_descendants(spared)
        time.sleep(SWEEP_S)
    return False
