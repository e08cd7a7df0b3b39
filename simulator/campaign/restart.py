"""One restart of a group of any size that nothing disturbs, on the delays of a real cluster: `make sim SEED= PODS=`."""

from __future__ import annotations

from simulator.campaign.run import Outcome, run_scenario
from simulator.campaign.scenario import Mode, Scenario
from simulator.cluster.timings import Timings

PODS_PER_NODE = 8  # as on an accelerator host


def run_restart(seed: int, pods: int, mode: Mode) -> Outcome:
    """Start a group, let one worker die, and stop when all run again.

    Args:
        seed: decides everything.
        pods: at least 1.
        mode: sidecar or supervisor.
    """
    scenario = Scenario(pods_per_job=pods, mode=mode, timings=Timings(), pods_per_node=PODS_PER_NODE, completes=False)
    return run_scenario(seed, scenario, (), until_s=0.0)
