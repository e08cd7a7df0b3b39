"""Actions of users at a bad moment."""

from __future__ import annotations

from copy import deepcopy
from random import Random
from typing import Any

from inplace.common.kube.client import MERGE_PATCH
from inplace.common.kube.resources import JOBS, JOBSETS, PODS
from inplace.common.wire import names as wire
from inplace.simulator.campaign.fault import FaultSite, accepted, fault
from inplace.simulator.campaign.scenario import JOBSET, NAMESPACE, PODS_MAX
from inplace.simulator.campaign.world import World
from inplace.simulator.cluster.timeline import own_status

USER = FaultSite.USER
GARBAGE_S_MAX = 6.0  # the garbage collector's longest delay; old Pods outlive their Job by it, beside the new JobSet's


@fault("jobset-recreated", USER, "the JobSet is deleted and created again with its name, while its Pods may still run")
async def _recreated(world: World, rng: Random, name: str) -> None:
    if not world.jobset:
        return
    policy = rng.choice(("Background", "Foreground"))
    uid = world.jobset["metadata"]["uid"]
    world.delay_garbage(rng.choice((0.0, rng.uniform(0.5, GARBAGE_S_MAX))))
    if not await accepted(world.client("user").delete(JOBSETS, NAMESPACE, JOBSET, propagation=policy, uid=uid)):
        return  # another user recreated it: to delete that one, and to wait for the old one, would leave none
    while world.jobset.get("metadata", {}).get("uid") == uid:
        await world.clock.sleep(0.1)
    await world.clock.sleep(rng.choice((0.0, rng.uniform(0.0, 2.0))))
    if await accepted(world.submit()):
        world.note_fault(name, policy)


@fault("resize", USER, "the group is made larger or smaller while it runs or restarts")
async def _resize(world: World, rng: Random, name: str) -> None:
    if not world.jobset:
        return
    replicated = _replicated(world)
    job = replicated[0]["template"]["spec"]
    jobs = int(replicated[0].get("replicas", 1))
    job["parallelism"] = job["completions"] = rng.randint(1, max(1, PODS_MAX // jobs))
    await _change(world, name, {"replicatedJobs": replicated}, f"to {job['parallelism']} per Job")


@fault("suspend", USER, "the JobSet is suspended and resumed while it runs or restarts")
async def _suspend(world: World, rng: Random, name: str) -> None:
    if not world.jobset:
        return

    async def resume() -> None:
        await _change(world, "", {"suspend": False}, "resumed")

    world.at_calm.append(resume)
    await _change(world, name, {"suspend": True}, "suspended")
    await world.clock.sleep(rng.uniform(0.0, 8.0))
    await resume()


@fault("budget-edited", USER, "maxRestarts is changed while the group runs")
async def _budget(world: World, rng: Random, name: str) -> None:
    if world.jobset:
        policy = {"maxRestarts": world.jobset["spec"]["failurePolicy"]["maxRestarts"] + rng.randint(0, 2)}
        await _change(world, name, {"failurePolicy": policy}, f"{policy}")


@fault("restart-requested", USER, "a restart is requested by annotation, once or several times")
async def _requested(world: World, rng: Random, name: str) -> None:
    for _ in range(rng.randint(1, 3)):
        world.judge.note_cause(free=True)
        body = {"metadata": {"annotations": {wire.RESTART_REQUESTED: f"{rng.getrandbits(32):08x}"}}}
        if not await _edit(world, body):
            return
        world.note_fault(name, JOBSET)
        await world.clock.sleep(rng.uniform(0.0, 1.0))


async def _change(world: World, name: str, spec: dict[str, Any], what: str) -> None:
    if await _edit(world, {"spec": spec}) and name:
        world.note_fault(name, what)


async def _edit(world: World, body: dict[str, Any]) -> bool:
    """Change the JobSet; say whether it is there, and its state allows this change."""
    return await accepted(world.client("user").patch(JOBSETS, NAMESPACE, JOBSET, body, kind=MERGE_PATCH))


def _replicated(world: World) -> list[Any]:
    replicated: list[Any] = deepcopy(world.jobset["spec"]["replicatedJobs"])
    return replicated


@fault("annotation-tampered", USER, "a Pod's epoch is overwritten by hand with another epoch or nonsense")
async def _tampered(world: World, rng: Random, name: str) -> None:
    synced, _ = wire.epochs_of_status(own_status(world.jobset))
    text = rng.choice((str(synced + rng.randint(2, 50)), str(max(1, synced - 1)), "0", "-1", "many", "99999999999"))
    await _annotate(world, rng, name, {wire.EPOCH: text})


@fault("annotation-removed", USER, "a Pod's epoch is removed by hand")
async def _removed(world: World, rng: Random, name: str) -> None:
    await _annotate(world, rng, name, {wire.EPOCH: None, wire.ATTEMPT: None})


async def _annotate(world: World, rng: Random, name: str, annotations: dict[str, str | None]) -> None:
    running = [pod for pod in world.pods if (pod["metadata"].get("annotations") or {}).get(wire.EPOCH)]
    if not running:
        return
    pod = rng.choice(running)["metadata"]["name"]
    world.judge.note_cause(2)
    body = {"metadata": {"annotations": annotations}}
    if await accepted(world.client("user").patch(PODS, NAMESPACE, pod, body, kind=MERGE_PATCH)):
        world.note_fault(name, f"{pod} {annotations}")


@fault("jobset-labelled", USER, "the JobSet is edited repeatedly, so that status writes conflict")
async def _labelled(world: World, rng: Random, name: str) -> None:
    for number in range(rng.randint(1, 12)):
        if not await _edit(world, {"metadata": {"labels": {"edited": str(number)}}}):
            return
        world.note_fault(name, str(number))
        await world.clock.sleep(rng.uniform(0.0, 0.05))


@fault("job-deleted", USER, "a user deletes a Job of the JobSet")
async def _job_deleted(world: World, rng: Random, name: str) -> None:
    jobs = [key for key in world.servers[0].store.collection(("batch", "jobs")).objects if key[0] == NAMESPACE]
    if not jobs:
        return
    job = rng.choice(jobs)[1]
    if await accepted(world.client("user").delete(JOBS, NAMESPACE, job, propagation="Background")):
        world.judge.note_cause(PODS_MAX)
        world.note_fault(name, job)
