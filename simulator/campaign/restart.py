"""One undisturbed restart of a group of any size, with the delays of a real cluster: `make sim SEED= PODS=`."""

from __future__ import annotations

from inplace.simulator.campaign.run import Outcome, run_scenario
from inplace.simulator.campaign.scenario import Mode, Scenario
from inplace.simulator.cluster.timings import Latency, Timings

PODS_PER_NODE = 8  # as on an accelerator host
PODS_PER_JOB = 500  # a Job controller makes one Job's Pods one after the other: a single Job of 5,000 takes 30 s
BIND = Latency(0.0002, 0.001)  # a fast scheduler: the first start is not measured, and Pods are probed while they wait


def run_restart(seed: int, pods: int, mode: Mode) -> Outcome:
    """Start a group, let one worker die, and stop when all run again.

    Args:
        seed: decides everything.
        pods: at least 1.
        mode: sidecar or supervisor.
    """
    jobs = next(count for count in range(-(-pods // PODS_PER_JOB), 0, -1) if pods % count == 0)
    scenario = Scenario(
        jobs, pods // jobs, mode, timings=Timings(bind=BIND), pods_per_node=PODS_PER_NODE, completes=False
    )
    return run_scenario(seed, scenario, (), until_s=0.0)
