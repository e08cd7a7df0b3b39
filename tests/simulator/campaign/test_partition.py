"""A node that is cut off while its worker lives: its Pod is replaced at once, and two epochs never run at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import pytest

from inplace.common.kube.client import MERGE_PATCH
from inplace.common.kube.resources import PODS, KubeObject
from inplace.common.protocol.lease import promised_s
from inplace.common.wire import names as wire
from inplace.common.wire.mode import Mode
from inplace.simulator.campaign.fault import Fault, FaultSite
from inplace.simulator.campaign.liveness import epochs_of, is_together
from inplace.simulator.campaign.partition import PARTITION, cut_off, give_verdict, heal, partition, run_partition
from inplace.simulator.campaign.run import Outcome, ScheduledFault, run_scenario
from inplace.simulator.campaign.scenario import Scenario
from inplace.simulator.campaign.world import World
from inplace.simulator.cluster.node_loss import give_up

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


def isolate(seen: Seen, verdict_s: float, *, heals: bool, crashes: bool) -> Fault:
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
    mode: Mode = Mode.SUPERVISOR,
    fence_after_s: int | None = LENGTH_S,
) -> tuple[Outcome, Seen]:
    """Run one partition."""
    seen = Seen()
    scenario = Scenario(
        mode=mode, pods_per_node=1, controllers=2, servers=2, lags_s=(0.0, 0.1), fence_after_s=fence_after_s
    )
    fault = isolate(seen, verdict_s, heals=heals, crashes=crashes)
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
    assert seen.ended_s - seen.cut_s >= LENGTH_S * 2 / 3 - 1.0  # it knew of nothing: only the end of its lease ended it
    assert len(seen.ghost_phases) == 1
    assert seen.together_s - seen.replaced_s <= promised_s(LENGTH_S) + SLACK_S


def test_when_the_peers_have_crashed_nobody_waits_longer_than_for_kubernetes() -> None:
    """The group has been restarting since then, so the lease is over when the verdict comes."""
    outcome, seen = play(2, verdict_s=50.0, crashes=True)
    judge(outcome, seen)
    assert seen.together_s - seen.verdict_s <= SLACK_S


@pytest.mark.slow
@pytest.mark.parametrize("mode", [Mode.SUPERVISOR, Mode.PROCESS])
@pytest.mark.parametrize("heals", [False, True])
@pytest.mark.parametrize("crashes", [False, True])
@pytest.mark.parametrize("seed", range(3, 8))
def test_two_epochs_never_run_at_once(seed: int, *, crashes: bool, heals: bool, mode: Mode) -> None:
    """Whether the node comes back or not, early or late."""
    verdict_s = Random(seed).choice((1.0, 5.0, 40.0, 60.0))
    judge(*play(seed, verdict_s=verdict_s, heals=heals, crashes=crashes, mode=mode))


@pytest.mark.parametrize("fence_after_s", [LENGTH_S, None])
def test_a_persons_word_that_a_node_is_off_is_taken(fence_after_s: int | None) -> None:
    """Its Pods are Failed then, and the group starts with their replacements; nobody waits for a lease."""
    told_s, together_s = list[float](), list[float]()

    async def out_of_service(world: World, _rng: Random, _name: str) -> None:
        node, epoch = world.pods[0]["spec"]["nodeName"], epochs_of(world)[0]
        world.judge.note_cause(world.scenario.pods)
        world.remove_node(node)
        await give_up(world.client("node-lifecycle"), world.clock, node, 1.0)
        told_s.append(world.now_s)
        together_s.append(await when(world, lambda: epochs_of(world)[0] > epoch and is_together(world)))

    scenario = Scenario(mode=Mode.SUPERVISOR, pods_per_node=1, fence_after_s=fence_after_s)
    off = Fault("out-of-service", FaultSite.NODE, "a node is off, and a person says so", out_of_service)
    outcome = run_scenario(1, scenario, (ScheduledFault(0, BEGINS_S, off),), until_s=BEGINS_S + 60.0)
    assert outcome.violation is None, str(outcome.violation)
    assert together_s[0] - told_s[0] <= SLACK_S < LENGTH_S


@pytest.mark.parametrize("leased", [True, False])
@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 60))])
def test_a_cut_beside_other_faults_breaks_nothing(seed: int, *, leased: bool) -> None:
    """Random groups with any of the catalogue's faults beside it, with and without leases."""
    outcome = run_partition(seed, leased=leased)
    assert outcome.violation is None, str(outcome.violation)


def test_a_promise_that_is_not_kept_is_found() -> None:
    """The worker has a lease of 60 s, and its Pod promises 25 s: the group starts beside it, which breaks S1."""

    async def lie(world: World, _rng: Random, _name: str) -> None:
        node = world.pods[0]["spec"]["nodeName"]
        promise = {"metadata": {"annotations": {wire.FENCED_WITHIN: str(promised_s(LENGTH_S))}}}
        cut_off(world, node)
        for pod in [pod for pod in world.pods if pod["spec"]["nodeName"] == node]:
            await world.client("user").patch(PODS, "default", pod["metadata"]["name"], promise, kind=MERGE_PATCH)
        await give_verdict(world, node, 1.0)

    scenario = Scenario(mode=Mode.SUPERVISOR, pods_per_node=1, fence_after_s=60)
    liar = Fault(PARTITION, FaultSite.NODE, "a node is cut off whose agent promises too much", lie)
    outcome = run_scenario(1, scenario, (ScheduledFault(0, BEGINS_S, liar),), until_s=BEGINS_S + 60.0)
    assert outcome.violation is not None
    assert outcome.violation.rule.startswith("S1 ")
