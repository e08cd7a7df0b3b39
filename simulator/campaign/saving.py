"""
Stop groups that train, at random moments and in every planned way, and count the steps that are made again.

Agents and controller are the real ones, under virtual time; the workers are those of
`simulator.campaign.lockstep`. A worker that never saves must delay nobody beyond the time that it was given.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final

from inplace.common.jobset.causes import Trigger
from inplace.common.jobset.requests import RestartRequest
from inplace.common.kube.resources import JOBSETS
from inplace.common.wire import names as wire
from inplace.common.wire.mode import Mode
from inplace.simulator.campaign.faults_nodes import evict
from inplace.simulator.campaign.judge import ViolationError
from inplace.simulator.campaign.liveness import TOGETHER_S, epochs_of, until
from inplace.simulator.campaign.lockstep import Lockstep
from inplace.simulator.campaign.process import campaign_runner
from inplace.simulator.campaign.scenario import JOBSET, NAMESPACE, Scenario
from inplace.simulator.campaign.trace import Trace
from inplace.simulator.campaign.world import World

PODS_COUNT: Final = 16
REQUEST, DRAIN, TAKEOVER, STUCK = "request", "drain", "takeover", "stuck"
KINDS: Final = (REQUEST, DRAIN, TAKEOVER, STUCK)
SAVE_WITHIN_S: Final = 60
TRAINED_S: Final = (0.0, 200.0)  # before the stop; a checkpoint comes every 100 s or so
DRAINED_MAX: Final = 3
SLACK_S: Final = 0.5  # the way of a request to the controller, and of a status to the judge
LOST = "a planned stop lost steps"
UNEXPLAINED = "a restart on request has another cause"
LATE = "a worker that does not save held the restart up"


@dataclass(slots=True)
class SavingOutcome:
    """What one planned stop cost.

    Args:
        kind: a request; a drain of one Pod or some; a request whose controller dies; one that a worker never follows.
        lost: steps that were made again.
        waited_s: from the request, or the eviction, to the write that ends the epoch.
        violation: what went wrong; "" when nothing did.
    """

    seed: int
    kind: str
    lost: int = 0
    waited_s: float = 0.0
    violation: str = ""


def run_saving(kind: str, seed: int, *, saves: bool = True) -> SavingOutcome:
    """Run one seed; without `saves` nobody is asked to save, for comparison, and lost steps are no violation."""
    outcome = SavingOutcome(seed, kind)
    try:
        with campaign_runner() as runner:
            runner.run(_run(outcome, Random(f"{seed}/{kind}"), saves=saves))
    except* ViolationError as group:
        outcome.violation = str(group.exceptions[0])
    return outcome


async def _run(outcome: SavingOutcome, rng: Random, *, saves: bool) -> None:
    within_s = SAVE_WITHIN_S if saves else 0
    scenario = Scenario(1, PODS_COUNT, Mode.SUPERVISOR, pods_per_node=4, save_within_s=within_s, completes=False)
    world = World(f"{outcome.seed}/{outcome.kind}", scenario, Trace(keeps=False))
    training = world.machine.lockstep = Lockstep(PODS_COUNT, rng)
    async with world.running():
        await _stop_once(world, training, outcome, rng, saves=saves)
    if (broken := world.judge.violation) is not None:
        outcome.violation = str(broken)


async def _stop_once(world: World, training: Lockstep, outcome: SavingOutcome, rng: Random, *, saves: bool) -> None:
    """Let the group train, stop it, and wait until it trains again."""
    await until(world, lambda: 1 in training.runs, TOGETHER_S, LATE)
    await world.clock.sleep(rng.uniform(*TRAINED_S))
    within_s = rng.randint(20, SAVE_WITHIN_S)
    began_s = world.now_s
    if outcome.kind == DRAIN:
        await _drain(world, rng)
    else:
        if outcome.kind == STUCK:
            training.stuck.add(rng.choice(world.pods)["metadata"]["uid"])
        await _request(world, within_s if saves else 0)
    if outcome.kind == TAKEOVER:
        await world.clock.sleep(rng.uniform(0.0, 1.0))
        for process in world.controllers.values():
            process.kill()
    await until(world, lambda: max(epochs_of(world)) > 1 or epochs_of(world)[1] == 1, TOGETHER_S, LATE, every_s=0.05)
    outcome.waited_s = world.now_s - began_s
    await until(world, lambda: 2 in training.runs, TOGETHER_S, LATE)
    outcome.lost = training.lost
    entry = world.jobset["status"][wire.LAST_GROUP_RESTART]
    if outcome.kind != DRAIN and entry["trigger"] != Trigger.MANUAL.value:
        outcome.violation = f"{UNEXPLAINED}: {entry}"
    if outcome.kind == STUCK:
        if saves and not within_s <= outcome.waited_s <= within_s + SLACK_S:
            outcome.violation = f"{LATE}: {outcome.waited_s:.1f} s of {within_s}"
    elif saves and outcome.lost:
        outcome.violation = f"{LOST}: {outcome.lost}"


async def _request(world: World, save_s: int) -> None:
    """Ask for a restart, as `inplace restart --save` does."""
    world.judge.note_cause(free=True)
    annotations = {wire.RESTART_REQUESTED: str(RestartRequest("by-hand", save_s))}
    await world.client("user").patch(JOBSETS, NAMESPACE, JOBSET, {"metadata": {"annotations": annotations}})


async def _drain(world: World, rng: Random) -> None:
    """Evict a Pod or some at once."""
    for pod in rng.sample(world.pods, rng.randint(1, DRAINED_MAX)):
        world.judge.note_cause()
        await evict(world, pod["metadata"]["name"])
