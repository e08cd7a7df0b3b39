"""
Run one seed: a scenario with a schedule of faults; then, without faults, the group must come together and complete.

    outcome = run_seed(7)
    print(outcome.hash, outcome.violation)

Each fault of the schedule has randomness of its own: when some faults are left out, the others act as before.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from random import Random

from inplace.common.kube.resources import KubeObject
from inplace.common.wire.mode import Mode
from inplace.simulator.campaign import hangs, liveness, spares
from inplace.simulator.campaign.catalogue import CATALOGUE, Fault
from inplace.simulator.campaign.judge import ViolationError
from inplace.simulator.campaign.process import campaign_runner
from inplace.simulator.campaign.scenario import PODS_MAX, Scenario, draw_scenario
from inplace.simulator.campaign.trace import Trace
from inplace.simulator.campaign.world import World
from inplace.simulator.cluster.timings import Latency, Timings
from inplace.simulator.cluster.virtual_time import describe_tasks

FAULTS_FROM_S, FAULTS_TO_S = 1.0, 25.0  # a group of eight has started after some two seconds
LAST_STRIKE_S = FAULTS_TO_S - 3.0  # a fault that takes a moment has struck BEFORE all faults end
KINDS_MAX = 7  # swarm testing: a run with few kinds of faults finds bugs that a run with all kinds hides
STRIKES_MAX = 10
DEATHS_MAX = 4
BURST_S = 2.0  # half of all faults strike within this time after a worker's death: a restart is under way then
PROGRAM = "P  a program failed with an error of its own"
HOT = "L4 the work does not end"
ENDLESS = "L4 a program does not end when it is told to"
EVENTS_MAX_PER_POD = 5_000  # of one run; a normal run has some 100
VIRTUAL_S_MAX = 3_600.0  # twice the sum of all bounded waits of a run

# Of one undisturbed restart of a group of any size, with the delays of a real cluster: `make sim SEED= PODS=`.
PODS_PER_NODE = 8  # as on an accelerator host
PODS_PER_JOB = 500  # a Job controller makes one Job's Pods one after the other: a single Job of 5,000 takes 30 s
BIND = Latency(0.0002, 0.001)  # a fast scheduler: the first start is not measured, and Pods are probed while they wait


@dataclass(frozen=True, slots=True)
class ScheduledFault:
    """One fault of a schedule."""

    number: int
    at_s: float
    fault: Fault

    def __str__(self) -> str:
        return f"{self.number}: {self.at_s:.3f} s {self.fault.name}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a run.

    Args:
        at_s: virtual seconds that the run took.
        restart_s: virtual seconds of the one undisturbed restart; None when there was none.
        watched: what happened to ranks that agents watched, and how often.
        fired: faults that had an effect, and how often.
        jobset: the JobSet at the end of the run.
    """

    seed: int
    scenario: Scenario
    strikes: tuple[ScheduledFault, ...]
    hash: str
    at_s: float
    events: int
    fired: Counter[str]
    violation: ViolationError | None = None
    lines: Sequence[str] = field(default=())
    jobset: KubeObject = field(default_factory=dict)
    restart_s: float | None = None
    watched: Counter[str] = field(default_factory=Counter)


def draw_strikes(rng: Random, faults: Sequence[Fault]) -> tuple[ScheduledFault, ...]:
    """Return the schedule of a seed: a few kinds of faults, and deaths of workers that start restarts."""
    kinds = rng.sample(list(faults), min(rng.randint(1, KINDS_MAX), len(faults)))
    deaths_s = [rng.uniform(FAULTS_FROM_S, LAST_STRIKE_S - BURST_S) for _ in range(rng.randint(1, DEATHS_MAX))]
    moments = [(at_s, CATALOGUE["worker-exit"]) for at_s in deaths_s]
    for kind in kinds + [rng.choice(kinds) for _ in range(rng.randint(0, STRIKES_MAX - KINDS_MAX))]:
        near = rng.random() < 0.5
        at_s = rng.choice(deaths_s) + rng.uniform(-0.2, BURST_S) if near else rng.uniform(0.0, LAST_STRIKE_S)
        moments.append((max(0.0, at_s), kind))
    moments.sort(key=lambda moment: moment[0])
    return tuple(ScheduledFault(number, at_s, fault) for number, (at_s, fault) in enumerate(moments))


def run_seed(
    seed: int, *, only: Collection[int] | None = None, faults: Sequence[Fault] | None = None, keeps: bool = False
) -> Outcome:
    """Run one seed.

    Args:
        seed: decides everything.
        only: numbers of the strikes to keep; None keeps all.
        faults: the faults that the schedule is drawn from; None is the whole catalogue.
        keeps: keep the trace's lines.
    """
    scenario = draw_scenario(Random(f"{seed}/scenario"))
    drawn = draw_strikes(Random(f"{seed}/strikes"), list(CATALOGUE.values()) if faults is None else faults)
    strikes = tuple(strike for strike in drawn if only is None or strike.number in only)
    return run_scenario(seed, scenario, strikes, keeps=keeps)


def run_scenario(
    seed: int,
    scenario: Scenario,
    strikes: tuple[ScheduledFault, ...],
    *,
    until_s: float = FAULTS_TO_S,
    prepare: Callable[[World], None] = lambda _: None,
    keeps: bool = False,
) -> Outcome:
    """Run one scenario with a schedule of faults.

    Args:
        seed: decides everything else.
        scenario: the group and its surroundings.
        strikes: in the order of their times.
        until_s: when all faults end.
        prepare: sees the world before it starts.
        keeps: keep the trace's lines.
    """
    trace = Trace(keeps=keeps)
    shuffle = Random(f"{seed}/order") if scenario.shuffles else None
    world: World | None = None
    violation: ViolationError | None = None

    def give_up() -> None:
        nonlocal violation
        loop = asyncio.get_running_loop()
        violation = ViolationError(ENDLESS, describe_tasks(asyncio.all_tasks(), loop.time()))
        loop.stop()

    async def main() -> None:
        nonlocal world
        asyncio.get_running_loop().call_later(VIRTUAL_S_MAX, give_up)
        world = World(str(seed), scenario, trace)
        prepare(world)
        async with world.running():
            await _course(world, strikes, until_s)

    try:
        with campaign_runner(shuffle) as runner:
            runner.run(main())
    except* ViolationError as group:
        violation = _first(group)
    except* Exception as group:  # noqa: BLE001 - whatever it is, it is the run's result
        violation = violation or ViolationError(PROGRAM, repr(_first(group)))
    assert world is not None
    watched = world.machine.watched
    for files in (watched, world.machine.steps):
        if files is not None:
            files.close()
    violation = world.judge.violation or violation
    return Outcome(
        seed,
        scenario,
        strikes,
        trace.hash,
        trace.last_s,
        trace.count,
        world.fired,
        violation,
        trace.lines,
        world.jobset,
        world.restart_s,
        watched.count if watched is not None else Counter(),
    )


async def _course(world: World, strikes: Sequence[ScheduledFault], until_s: float) -> None:
    """Let faults strike, end them, and check that the group recovers and completes."""
    if world.machine.watched is not None:
        world.go(hangs.disturb(world, world.machine.watched, LAST_STRIKE_S), "hangs")
    watch = world.group.create_task(_stop_at_violation(world), name="judge")
    for strike in strikes:
        await world.clock.sleep(max(0.0, strike.at_s - world.now_s))
        world.group.create_task(_strike(world, strike), name=str(strike))
    await world.clock.sleep(max(0.0, until_s - world.now_s))
    await world.calm()
    await liveness.converge(world)
    if world.scenario.members is not None:
        await spares.until_full(world)  # a spare that announces late would pay for two epochs in one restart
        await spares.until_quiet(world)
    world.restart_s = await liveness.restart_cheaply(world)
    if world.scenario.members is not None:
        await spares.exchange(world)
    if world.machine.watched is not None:
        await hangs.save_once(world, world.machine.watched)
        await hangs.hang_once(world, world.machine.watched)
    if world.scenario.completes:
        await liveness.complete(world)
        await spares.end_spares(world)
    watch.cancel()


async def _strike(world: World, strike: ScheduledFault) -> None:
    if world.is_calm:
        return  # too late: all faults have ended
    world.trace.add("strike", str(strike))
    await strike.fault.strike(world, world.random(f"strike {strike.number}"), strike.fault.name)


async def _stop_at_violation(world: World) -> None:
    """End the run soon after the first violation: later events tell nothing."""
    while True:
        await world.clock.sleep(0.5)
        if world.judge.violation is not None:
            raise world.judge.violation
        if world.trace.count > EVENTS_MAX_PER_POD * max(world.scenario.pods, PODS_MAX):
            raise ViolationError(HOT, f"{world.trace.count} events within {world.now_s:.0f} s")


def _first(error: BaseException) -> ViolationError:
    """Return the first error inside nested exception groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error  # type: ignore[return-value]  # the callers know what they caught


def run_restart(seed: int, pods: int, mode: Mode) -> Outcome:
    """Start a group, let one worker die, and stop when all run again.

    Args:
        seed: decides everything.
        pods: at least 1.
        mode: how its workers are run.
    """
    jobs = next(count for count in range(-(-pods // PODS_PER_JOB), 0, -1) if pods % count == 0)
    scenario = Scenario(
        jobs, pods // jobs, mode, timings=Timings(bind=BIND), pods_per_node=PODS_PER_NODE, completes=False
    )
    return run_scenario(seed, scenario, (), until_s=0.0)
