"""A node that is cut off while its worker lives: its Pod is replaced at once, and two epochs never run at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import pytest

from inplace.common.epoch.lease import promised_s
from inplace.common.kube.resources import KubeObject
from inplace.simulator.campaign.fault import Fault, FaultSite
from inplace.simulator.campaign.liveness import epochs_of, is_together
from inplace.simulator.campaign.partition import PARTITION, heal, partition
from inplace.simulator.campaign.run import Outcome, ScheduledFault, run_scenario
from inplace.simulator.campaign.scenario import Mode, Scenario
from inplace.simulator.campaign.world import World

LENGTH_S = 15
REPLACED_S_MAX = 5.0  # from Kubernetes' verdict
BEGINS_S = 10.0  # the group runs by then
SLACK_S = 10.0  # the replacement's start, and the latencies of the model


@dataclass
class Seen:
    """What happened after the cut, in seconds of the run."""

    cut_s: float = 0.0
    verdict_s: float = 0.0
    replaced_s: float = 0.0
    ended_s: float = 0.0
    together_s: float = 0.0
    ghost_phases: list[KubeObject] = field(default_factory=list)


def cut_off(seen: Seen, verdict_s: float, *, heals: bool, crashes: bool) -> Fault:
    """Return a fault that cuts off the first node of the group, and looks on until the group is together again."""

    async def strike(world: World, _rng: Random, _name: str) -> None:
        victim = world.pods[0]
        uid, node, epoch = victim["metadata"]["uid"], victim["spec"]["nodeName"], epochs_of(world)[0]
        assert uid in world.judge.running
        seen.cut_s = world.now_s
        if crashes:
            world.judge.note_cause()
            next(w for w in world.machine.workers.values() if w.pod["spec"]["nodeName"] != node).end(1)
        ended = world.group.create_task(when(world, lambda: uid not in world.judge.running))
        cut = await partition(world, node, verdict_s)
        seen.verdict_s = world.now_s
        assert (uid in world.judge.running) == (verdict_s < LENGTH_S / 2)
        slot = victim["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"]

        def others() -> list[KubeObject]:
            pods = [pod for pod in world.pods if pod["metadata"]["uid"] != uid]
            return [p for p in pods if p["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"] == slot]

        seen.replaced_s = await when(world, lambda: bool(others()))
        if heals:
            await heal(world, node, cut)
        seen.ended_s = await ended
        seen.together_s = await when(world, lambda: epochs_of(world)[0] > epoch and is_together(world))
        seen.ghost_phases = [pod for pod in world.pods if pod["metadata"]["uid"] == uid]
        if not heals:
            await heal(world, node, cut)

    return Fault(PARTITION, FaultSite.NODE, "a node is cut off while its worker lives", strike)


async def when(world: World, is_true: Callable[[], bool]) -> float:
    """Wait; return when it was so."""
    while not is_true():
        await world.clock.sleep(0.1)
    return world.now_s


def play(
    seed: int,
    *,
    verdict_s: float,
    heals: bool = False,
    crashes: bool = False,
    mode: Mode = "supervisor",
    fence_after_s: int | None = LENGTH_S,
) -> tuple[Outcome, Seen]:
    """Run one partition."""
    seen = Seen()
    scenario = Scenario(
        mode=mode, pods_per_node=1, controllers=2, servers=2, lags_s=(0.0, 0.1), fence_after_s=fence_after_s
    )
    fault = cut_off(seen, verdict_s, heals=heals, crashes=crashes)
    strikes = (ScheduledFault(0, BEGINS_S, fault),)
    return run_scenario(seed, scenario, strikes, until_s=BEGINS_S + verdict_s + 60.0), seen


def judge(outcome: Outcome, seen: Seen) -> None:
    """Check what holds of every partition."""
    assert outcome.violation is None, str(outcome.violation)
    assert seen.replaced_s - seen.verdict_s <= REPLACED_S_MAX
    assert 0.0 < seen.ended_s - seen.cut_s <= LENGTH_S + 2.0
    assert seen.together_s > seen.ended_s


def test_the_old_worker_has_ended_before_the_group_starts_without_it() -> None:
    """Although Kubernetes gives its verdict long before the lease is over, and the Pod's object stays."""
    outcome, seen = play(1, verdict_s=5.0)
    judge(outcome, seen)
    assert len(seen.ghost_phases) == 1
    assert seen.together_s - seen.replaced_s <= promised_s(LENGTH_S) + SLACK_S


def test_when_the_peers_have_crashed_nobody_waits_longer_than_for_kubernetes() -> None:
    """The group has been restarting since then, so the lease is over when the verdict comes."""
    outcome, seen = play(2, verdict_s=50.0, crashes=True)
    judge(outcome, seen)
    assert seen.together_s - seen.verdict_s <= SLACK_S


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["supervisor", "process"])
@pytest.mark.parametrize("heals", [False, True])
@pytest.mark.parametrize("crashes", [False, True])
@pytest.mark.parametrize("seed", range(3, 8))
def test_two_epochs_never_run_at_once(seed: int, *, crashes: bool, heals: bool, mode: Mode) -> None:
    """Whether the node comes back or not, early or late."""
    verdict_s = Random(seed).choice((1.0, 5.0, 40.0, 60.0))
    judge(*play(seed, verdict_s=verdict_s, heals=heals, crashes=crashes, mode=mode))
