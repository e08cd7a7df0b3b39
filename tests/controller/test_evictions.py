"""EvictionRequests with the whole controller: a member moves to a spare before its Pod is evicted."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from inplace.common.kube.resources import (
    CUSTOM_RESOURCE_DEFINITIONS,
    EVICTION_REQUESTS,
    EVICTIONS,
    JOBSETS,
    PODS,
    KubeObject,
)
from inplace.common.kube.timestamps import time_text
from inplace.common.wire import names as wire
from inplace.common.wire.members import read_members
from testbed.waiting import eventually, until
from tests.controller.queued import definition
from tests.stories.scenes import Scene, VirtualScene, virtual_scene
from tests.stories.words import StoryWorld

MOVES: Final = "it is a member: its group saves, and restarts in place so that a spare takes its rank"
OURS, LAST = wire.EVICTION_RESPONDER, "imperative-eviction.k8s.io/evictor"


async def pod_of(scene: Scene, index: int) -> KubeObject:
    """Return the Pod of a completion index."""
    pods: list[KubeObject] = (await scene.admin.list(PODS, scene.namespace))["items"]
    label = "batch.kubernetes.io/job-completion-index"
    return next(one for one in pods if (one["metadata"].get("labels") or {}).get(label) == str(index))


async def ask(scene: Scene, index: int, *, kind: Any = EVICTION_REQUESTS) -> KubeObject:
    """Ask for a Pod's eviction, as an administrator's tool does; or let Kubernetes make the Eviction."""
    metadata = (await pod_of(scene, index))["metadata"]
    target: KubeObject = {"target": {"pod": {"name": metadata["name"], "uid": metadata["uid"]}}}
    if kind is EVICTION_REQUESTS:
        target |= {"requester": "example.com/maintenance", "intent": "Eviction"}
    made = {"metadata": {"name": f"of-{index}", "labels": {OURS: "responder"}}, "spec": target}
    return await scene.admin.create(kind, scene.namespace, made | {"apiVersion": kind.api_version, "kind": kind.kind})


async def hand_over(scene: Scene, index: int, now: str) -> None:
    """Do as the eviction controller of Kubernetes 1.38: it makes an Eviction, and it is our turn to respond."""
    made = await ask(scene, index, kind=EVICTIONS)
    states = ((OURS, 10_000, "Active"), (LAST, 100, "Inactive"))
    targets = [{"name": name, "priority": priority, "state": state} for name, priority, state in states]
    status = {"targetResponders": targets, "responders": [{"name": OURS, "startTime": now}, {"name": LAST}]}
    name = made["metadata"]["name"]
    await scene.admin.patch(EVICTIONS, scene.namespace, name, {"status": status}, subresource="status")


async def reported(scene: Scene, index: int) -> tuple[str, bool]:
    """Return what we reported last, and whether we said that it is done."""
    own: KubeObject = (await scene.admin.get(EVICTIONS, scene.namespace, f"of-{index}"))["status"]["responders"][0]
    assert own.get("heartbeatTime", own["startTime"]) >= own["startTime"]
    return own.get("message", ""), "completionTime" in own


async def scope_of(scene: Scene) -> KubeObject:
    """Return the status of the one scope."""
    scopes: list[KubeObject] = (await scene.admin.get(JOBSETS, scene.namespace, "train"))["status"][wire.SCOPED_EPOCHS]
    return scopes[0]


async def member_moves(scene: Scene, now: Callable[[], str]) -> None:
    """Play a requested eviction: one restart with time to save, reports until then, and an end that costs nothing."""
    world = StoryWorld(scene)
    named = f'set pod.spec.evictionResponders [{{"name": "{OURS}", "priority": 10000}}]'
    await world.play(("jobset jobs=workers:1x4 members=3 restart=save-within=60", named, "start"))
    await eventually(lambda: epochs(scene), (1, 0))
    await world.play(("announce 2 p3", "wait 1"))
    await ask(scene, 1)
    await hand_over(scene, 1, now())
    await eventually(lambda: reported(scene, 1), (MOVES, False))
    await until(lambda: is_saving(scene), "the workers are asked to save")

    await world.play(("announce 2 p0 p1 p2",))
    await eventually(lambda: epochs(scene), (2, 1))
    await eventually(lambda: reported(scene, 1), ("no worker runs in it", True))
    await world.play(("run", "drain p1", "end p1", "wait 2"))
    assert await epochs(scene) == (2, 1)
    members = read_members((await scope_of(scene))[wire.MEMBERS_FIELD])
    assert members is not None
    assert members.slots() == [0, 3, 2]


async def is_saving(scene: Scene) -> bool:
    """Return whether the workers are asked to save."""
    return wire.SAVING in await scope_of(scene)


async def epochs(scene: Scene) -> tuple[int, int]:
    """Return S and D."""
    return wire.epochs_of_status(await scope_of(scene))


@asynccontextmanager
async def asked_scene() -> AsyncIterator[VirtualScene]:
    """Run an embedded API server that stores both kinds, and a controller."""
    async with virtual_scene() as scene:
        for kind in (EVICTION_REQUESTS, EVICTIONS):
            await scene.admin.create(CUSTOM_RESOURCE_DEFINITIONS, None, definition(kind))
        yield scene


@pytest.mark.virtual_time
async def test_a_member_whose_eviction_is_requested_moves_with_time_to_save() -> None:
    """One restart gives its rank to a spare; the responder reports until then."""
    async with asked_scene() as scene:
        await member_moves(scene, lambda: time_text(scene.rig.clock))


@pytest.mark.virtual_time
async def test_an_eviction_that_no_restart_would_help_goes_on_at_once() -> None:
    """Without a ready spare, and for a spare, we are done at once; a request that is withdrawn moves nobody."""
    async with asked_scene() as scene:
        world = StoryWorld(scene)
        await world.play(("jobset jobs=workers:1x4 members=3", "start"))
        for index, why in ((1, "it is a member, and no spare is ready to take its rank"), (3, "no worker runs in it")):
            await ask(scene, index)
            await hand_over(scene, index, time_text(scene.rig.clock))
            await scene.wait(2.0)
            assert await reported(scene, index) == (why, True)
            request = {"spec": {"intent": "Withdrawn"}}
            await scene.admin.patch(EVICTION_REQUESTS, scene.namespace, f"of-{index}", request)
        await world.play(("announce 2 p3", "wait 5"))
        assert await epochs(scene) == (1, 0)


@pytest.mark.virtual_time
@pytest.mark.parametrize(("members", "asked"), [("", 0), ("members=3", 2)])
async def test_a_server_without_the_api_is_asked_seldom(members: str, asked: int) -> None:
    """A controller asks for the kinds only where a group has spares, and then every ten minutes."""
    async with virtual_scene() as scene:
        await StoryWorld(scene).play((f"jobset jobs=workers:1x4 {members}".rstrip(), "start", "wait 700"))
        assert sum(EVICTIONS.group in one.path for one in scene.rig.requests) == asked
