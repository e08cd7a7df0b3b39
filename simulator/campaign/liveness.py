"""Judge liveness once faults have stopped: L1 the group comes together, L2 a restart is cheap, L3 the JobSet ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from inplace.common.wire import names as wire
from inplace.simulator.campaign.containers import agent_client
from inplace.simulator.campaign.judge import ViolationError
from inplace.simulator.campaign.network import Ending
from inplace.simulator.campaign.slots import slot_of, slots_of
from inplace.simulator.campaign.world import World
from inplace.simulator.cluster.timeline import own_status
from inplace.simulator.cluster.virtual_time import describe_tasks

L1 = "L1 the group did not come together after the last fault"
L2 = "L2 a restart without faults cost a Pod more than one watch and one patch"
L3 = "L3 the JobSet did not reach a terminal state"
S8 = "S8 the JobSet failed with restarts left"

# A half-open watch is noticed after 150 s (common.kube.watch.INACTIVITY_S); then come a backoff of at most 30 s, a list
# that may hang once more for 60 s, and a restart.
TOGETHER_S = 400.0
COMPLETE_S = 400.0
LOOK_S = 0.25


async def converge(world: World) -> None:
    """Wait until every slot's worker runs in the synced epoch, or the JobSet has ended within its restart budget.

    Raises:
        ViolationError: neither happens within TOGETHER_S.
    """
    await until(world, lambda: is_together(world) or bool(terminal(world)), TOGETHER_S, L1)
    if terminal(world) == "Failed":
        _judge_failure(world)


async def complete(world: World) -> None:
    """Let every worker end with success and wait for the JobSet's end.

    Raises:
        ViolationError: the JobSet does not end within COMPLETE_S.
    """
    world.machine.completes = True
    for training in list(world.machine.workers.values()):
        training.end(0)
    await until(world, lambda: bool(terminal(world)), COMPLETE_S, L3)
    if terminal(world) == "Failed":
        _judge_failure(world)


async def restart_cheaply(world: World) -> float | None:
    """Let one more worker die without other faults; check the requests of the restart and return its seconds.

    One watch and one patch for each Pod. One patch more for the Pod that tells of the death: below a guard, and where a
    worker that fails again gets clean containers. One more for each Pod whose rank a spare took, because its node is
    bad: it has announced the epoch that began without it, and waits for the next one. And one more for each Pod whose
    last patch got no answer because of a fault: it is sent again.

    None: the group has ended, or a half-open watch is still about to disturb it.

    Raises:
        ViolationError: an agent sent more requests than a restart may cost.
    """
    await world.clock.sleep(max(0.0, world.thawed_s - world.now_s))
    if any(stream.ending is Ending.SILENT for stream in world.network.streams):
        return None
    await until(world, lambda: all_watch(world) or bool(terminal(world)), TOGETHER_S, L1)
    if terminal(world) or not is_together(world):
        return None
    before, unanswered = world.network.requests.copy(), world.network.unanswered.copy()
    epoch = epochs_of(world)[0]
    victim, ran = next(iter(world.machine.workers.values())), _agents_that_run(world)
    world.judge.note_cause()
    began_s = world.now_s
    victim.end(1)
    back = lambda: (is_together(world) and epochs_of(world)[0] > epoch) or bool(terminal(world))  # noqa: E731
    await until(world, back, TOGETHER_S, L1)
    if terminal(world):
        return None
    took_s = world.now_s - began_s
    # A controller that is new skips an epoch with spares, where a member did not say that it ran (docs/adr/0107).
    rounds = epochs_of(world)[0] - epoch if world.scenario.members is not None else 1
    tells = agent_client(victim.pod) if world.scenario.mode.is_guarded else ""
    replaced = ran - _agents_that_run(world) if world.scenario.members is not None else set[str]()
    for what, count in (world.network.requests - before).items():
        client, method = what
        cost = count - ((client == tells) + (client in replaced)) * (method == "PATCH") - (what in unanswered)
        if client.startswith("agent/") and method in ("WATCH", "PATCH") and cost > rounds:
            raise ViolationError(L2, f"{client} sent {cost} of {method}")
    return took_s


def _agents_that_run(world: World) -> set[str]:
    return {agent_client(training.pod) for training in world.machine.workers.values()}


def is_together(world: World) -> bool:
    """Return whether all slots, or all members, run in the synced epoch, and no Pod with a worker is about to end."""
    jobset = world.jobset
    if not jobset or "deletionTimestamp" in jobset["metadata"]:
        return False
    synced, deprecated = epochs_of(world)
    if synced <= deprecated or any(training.is_hung for training in world.machine.workers.values()):
        return False
    leaving = {pod["metadata"]["uid"] for pod in world.pods if "deletionTimestamp" in pod["metadata"]}
    if any(training.pod["metadata"]["uid"] in leaving for training in world.machine.workers.values()):
        return False
    members = world.judge.members.of(jobset["metadata"]["uid"], synced)
    wanted = set(slots_of(jobset) if members is None else world.judge.members.slots(jobset, members))
    runs = [slot_of(t.pod) for t in world.machine.workers.values() if t.pod["metadata"]["uid"] in world.judge.running]
    running = [r for r in world.judge.running.values() if r.jobset == jobset["metadata"]["uid"]]
    return len(runs) == len(wanted) and {r.slot for r in running} == wanted and all(r.epoch == synced for r in running)


def all_watch(world: World) -> bool:
    """Return whether every agent has an open watch."""
    watching = {stream.client for stream in world.network.streams if stream.ending is None}
    return watching.issuperset(agent.client for agent in world.machine.agents.values())


def epochs_of(world: World) -> tuple[int, int]:
    """Return the JobSet's (S, D)."""
    return wire.epochs_of_status(own_status(world.jobset))


def terminal(world: World) -> str:
    """Return the JobSet's terminal state; "" while it has none."""
    return str((world.jobset.get("status") or {}).get("terminalState") or "")


def _judge_failure(world: World) -> None:
    """Raise S8 when a JobSet failed with too few causes, or before all restarts of its budget were made."""
    history = world.judge.histories[world.jobset["metadata"]["uid"]]
    failed = history.ended or world.jobset
    allowed, status = failed["spec"]["failurePolicy"]["maxRestarts"], failed["status"]
    made = max(0, wire.epochs_of_status(own_status(failed))[0] - 1) + status.get("restarts", 0)
    if history.causes <= allowed or made < allowed:
        said = f"{history.causes} causes, {made} restarts, maxRestarts is {allowed}"
        raise ViolationError(S8, f"{said}: {status}")


async def until(
    world: World, holds: Callable[[], bool], within_s: float, rule: str, *, every_s: float = LOOK_S
) -> None:
    """Wait until something holds.

    Raises:
        ViolationError: of this rule; it does not hold within that time.
    """
    end_s = world.now_s + within_s
    while not holds():
        if world.now_s >= end_s:
            raise ViolationError(rule, f"not within {within_s:g} s; {_why(world)}")
        await world.clock.sleep(every_s)


def _why(world: World) -> str:
    """Describe the status, Pods and workers, and what each task waits for."""
    running = ", ".join(f"{r.pod} in {r.epoch}" for r in world.judge.running.values())
    pods = ", ".join(
        f"{p['metadata']['name']} {(p.get('status') or {}).get('phase')} "
        f"epoch {(p['metadata'].get('annotations') or {}).get(wire.EPOCH)}"
        for p in world.pods
    )
    status = world.jobset.get("status")
    tasks = describe_tasks(asyncio.all_tasks(), world.now_s)
    return f"status {status}; Pods: {pods}; running: {running}\n{tasks}"
