"""
Judge a group with spares once faults have stopped: what the loss of a spare and of a member costs, and the end.

    M5  a spare that is lost is no restart, and neither is its replacement
    M6  a member that is lost, where no Pod finds room, costs one restart: a spare plays its rank, or after the wait the
        group goes on with fewer
    M7  where Pods find room again, the group is as large as it may be
    M8  when the members have completed, the spares end with 0
"""

from __future__ import annotations

from collections import Counter

from inplace.common.kube.resources import PODS, KubeObject
from inplace.common.protocol.members import Members
from inplace.common.wire import names as wire
from inplace.simulator.campaign.faults_nodes import set_room
from inplace.simulator.campaign.judge import ViolationError
from inplace.simulator.campaign.liveness import TOGETHER_S, all_watch, epochs_of, is_together, terminal, until
from inplace.simulator.campaign.member_rules import fits, policy_of
from inplace.simulator.campaign.network import Ending
from inplace.simulator.campaign.scenario import NAMESPACE
from inplace.simulator.campaign.slots import Slot, place_of, slot_of, slots_of, unit_of
from inplace.simulator.campaign.world import World
from inplace.simulator.cluster.job_indexes import expand

M5 = "M5 the loss of a spare restarted the group"
M6 = "M6 a lost member cost more than one restart, or waited for its Pod"
M7 = "M7 the group did not grow to its full size"
M8 = "M8 the spares of a completed group did not end with 0"
GROWN_S = 2_000.0  # a growth that failed doubles the next wait, five times within the time of faults
LIFT_S = 15.0  # from the last announcement to S: a backoff of 8 s, lags and requests
SETTLED_S = 3.0  # after a spare's announcement anything that it causes would have begun
ENDED_S = 90.0  # a spare that hears nothing of the end is deleted after 30 s, and has 30 s of grace


async def exchange(world: World) -> None:
    """Let a spare and then a member be lost without other faults.

    Raises:
        ViolationError: it costs more than it should.
    """
    await until_full(world)
    if terminal(world) or members_of(world) is None:
        return
    await _lose_spare(world)
    if not terminal(world):
        await _lose_member(world)


async def end_spares(world: World) -> None:
    """Wait until the Pods of a completed group have ended.

    Raises:
        ViolationError: a Pod runs on, or one that heard of the end did not end with 0.
    """
    if terminal(world) != "Completed" or members_of(world) is None:
        return
    hears = all_hear(world)
    uids = {pod["metadata"]["uid"] for pod in active(world)}
    ended = lambda: not world.machine.agents and not world.judge.running  # noqa: E731
    await until(world, ended, ENDED_S, M8, every_s=0.05)
    await world.clock.sleep(1.0)
    pods = [pod for pod in world.pods if pod["metadata"]["uid"] in uids]
    failed = [pod["metadata"]["name"] for pod in pods if pod["status"].get("phase") != "Succeeded"]
    if hears and (failed or len(pods) < len(uids)):
        raise ViolationError(M8, f"{failed} did not, and {len(uids) - len(pods)} of {len(uids)} are gone")


def all_hear(world: World) -> bool:
    """Say whether no watch is half-open: that is noticed after 150 s (common.kube.watch.INACTIVITY_S)."""
    return all_watch(world) and not any(stream.ending is Ending.SILENT for stream in world.network.streams)


def members_of(world: World) -> Members | None:
    """Return who runs in S; None of a group without spares."""
    jobset = world.jobset
    return world.judge.members.of(jobset["metadata"]["uid"], epochs_of(world)[0]) if jobset else None


def is_full(world: World) -> bool:
    """Say whether as many members train as may, and every other slot's Pod has announced the next epoch."""
    members = members_of(world)
    if not is_together(world):
        return False
    if members is None:  # it began with numbers that do not fit its Pods: it has no spares, and all train
        return not fits(world.jobset)
    slots, pods = available(world), active(world)
    ready = {slot_of(pod) for pod in pods if _has_announced(world, pod, members.epoch + 1) or _plays(members, pod)}
    live = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    is_largest = members.size == policy_of(world.jobset).sizes.fit(_units(members, slots))
    return is_largest and ready == slots and len(live) == len(pods) == len(slots)


def available(world: World) -> set[Slot]:
    """Return the slots that may have Pods: a Job never replaces a Pod that completed."""
    jobs = world.servers[0].store.collection(("batch", "jobs")).objects
    done = {
        (name, str(index))
        for (_, name), job in jobs.items()
        for index in expand((job.get("status") or {}).get("completedIndexes") or "")
    }
    return set(slots_of(world.jobset)) - done


def _units(members: Members, slots: set[Slot]) -> int:
    """Return how many units have all of their slots among these."""
    counts = Counter(unit_of(members, slot) for slot in slots)
    return sum(count == (members.pods or 1) for count in counts.values())


def active(world: World) -> list[KubeObject]:
    """Return the Pods that have not ended."""
    return [pod for pod in world.pods if (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")]


async def until_full(world: World) -> None:
    """Wait until the group has its full size, and its spares have announced the next epoch.

    Raises:
        ViolationError: it does not get there.
    """
    await until(world, lambda: is_full(world) or bool(terminal(world)), GROWN_S, M7)


async def until_quiet(world: World) -> None:
    """Wait until every spare's agent is there and has announced for good.

    One that starts anew, or lost the answer to its announcement, announces once more: that is of no restart.

    Raises:
        ViolationError: it does not get there.
    """

    def are_there() -> bool:
        uids = {pod["metadata"]["uid"] for pod in active(world)}
        return uids <= world.machine.agents.keys() and all_watch(world)

    await until(world, lambda: are_there() or bool(terminal(world)), TOGETHER_S, M7)
    await world.clock.sleep(SETTLED_S)


async def _lose_spare(world: World) -> None:
    """Delete a spare; nobody restarts, and the Pod that replaces it becomes a spare."""
    members = members_of(world)
    assert members is not None
    spares = [pod for pod in active(world) if not _plays(members, pod)]
    if not spares:
        return
    lost, running, epochs = spares[0], dict(world.judge.running), epochs_of(world)
    await _delete(world, lost)
    uid = lost["metadata"]["uid"]

    def is_replaced() -> bool:
        return is_full(world) and all(pod["metadata"]["uid"] != uid for pod in world.pods)

    await until(world, lambda: is_replaced() or epochs_of(world) != epochs, TOGETHER_S, M5)
    await world.clock.sleep(SETTLED_S)
    if epochs_of(world) != epochs or world.judge.running != running:
        raise ViolationError(M5, f"{epochs} became {epochs_of(world)}")


async def _lose_member(world: World) -> None:
    """Delete a member while no Pod finds room; then give it room."""
    before = members_of(world)
    assert before is not None
    policy = policy_of(world.jobset)
    size = min(before.size, policy.sizes.fit(_units(before, available(world)) - 1))
    victim = next(pod for pod in active(world) if _plays(before, pod))
    has_room = size > 0
    if has_room:
        await set_room(world, 0)
    began_s, epoch, hears = world.now_s, before.epoch, all_hear(world)

    def has_restarted() -> bool:
        return is_together(world) and epochs_of(world)[0] > epoch

    await _delete(world, victim)
    await until(world, lambda: has_restarted() or bool(terminal(world)), TOGETHER_S + policy.wait_s, M6)
    if terminal(world):
        return
    after = members_of(world)
    assert after is not None
    history = world.judge.histories[world.jobset["metadata"]["uid"]]
    started = {epoch for _, epoch in history.started if epoch > before.epoch}
    slot = unit_of(before, slot_of(victim))
    is_exact = has_room and hears  # after the list that ends a half-open watch an epoch is skipped, one may be smaller
    if is_exact and (after.size != size or after.rank_of(slot) is not None or started != {after.epoch}):
        raise ViolationError(M6, f"slot {slot} was lost: {before} became {after}, of {size}, epochs {sorted(started)}")
    if is_exact and size == before.size:
        moved = [rank for rank, one in enumerate(before.slots()) if after.slots()[rank] != one]
        if moved != [before.rank_of(slot)]:
            raise ViolationError(M6, f"slot {slot} was lost, and ranks {moved} moved: {before} became {after}")
        announced_s = max(world.judge.members.announced_s(world.jobset, after), began_s)
        if world.judge.clocks_agree and world.judge.members.synced_s(world.jobset) - announced_s > LIFT_S:
            raise ViolationError(M6, f"the barrier waited, although a spare was there: {after}")
    await set_room(world, world.scenario.pods_per_node + 1)
    await until_full(world)
    if is_exact and size == before.size and not terminal(world) and epochs_of(world)[0] != after.epoch:
        raise ViolationError(M5, f"{after} became epochs {epochs_of(world)} when the lost slot's Pod came back")


async def _delete(world: World, pod: KubeObject) -> None:
    world.judge.note_cause_of(pod)
    await world.client("user").delete(PODS, NAMESPACE, pod["metadata"]["name"])


def _plays(members: Members, pod: KubeObject) -> bool:
    return place_of(members, slot_of(pod)) is not None


def _has_announced(world: World, pod: KubeObject, epoch: int) -> bool:
    """Say whether an agent announced an epoch, and the Pod shows it: a person may have written it as well."""
    text = str((pod["metadata"].get("annotations") or {}).get(wire.EPOCH, ""))
    by_agent = world.judge.histories[world.jobset["metadata"]["uid"]].announced.get(slot_of(pod), 0)
    return text == str(epoch) and by_agent >= epoch
