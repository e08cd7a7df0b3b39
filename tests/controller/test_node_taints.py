"""Taints of bad nodes with the whole controller: who leaves, what bounds it, and that no taint is left behind."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from inplace.common.kube.http.request import Request, Response
from inplace.common.kube.resources import JOBSETS, NODES, PODS, KubeObject
from inplace.common.wire import names as wire
from inplace.controller.act.node_tainting import NodeTaints
from inplace.controller.spec.node_taints import TaintLimits, is_wanted
from inplace.controller.term import Term
from inplace.simulator.cluster.nodes import node
from tests.common.kube.answers import refusal
from tests.controller.background import background
from tests.controller.crew import Crew
from tests.controller.manifests import jobset, replicated_job
from tests.controller.rig import Rig, running_rig
from tests.mistakes.mistake import Mistake, instead_of, planted

pytestmark = pytest.mark.virtual_time

LIMITS = TaintLimits(2, 600)
HOST = "kubernetes.io/hostname"
TOPOLOGY = {"kueue.x-k8s.io/podset-required-topology": "rack"}
OURS = {"key": wire.BAD_NODE, "effect": "NoSchedule"}
THEIRS = {"key": "broken", "effect": "PreferNoSchedule"}
CHECKED_S = 6.0  # after which a taint that is not wanted has gone


@pytest.fixture
def rig() -> AbstractAsyncContextManager[Rig]:
    """Return an API server with a running controller that may taint nodes."""
    return running_rig(taint_limits=LIMITS)


def manifest(name: str = "train", *, pods: int = 3, bad_nodes: str = "1/3600", **annotations: str) -> KubeObject:
    """Return a JobSet whose Pods Kueue places."""
    given = {wire.CRASH_LOOP_BACKOFF: "0", wire.BAD_NODES: bad_nodes}
    given |= {getattr(wire, key): value for key, value in annotations.items()}
    wanted = jobset(name, jobs=[replicated_job(replicas=1, pods=pods)], restarts_max=100, annotations=given)
    pods_template = wanted["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    pods_template["metadata"] = {"annotations": TOPOLOGY}
    pods_template["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/topology"}]
    return wanted


async def place(rig: Rig, crew: Crew, index: int, where: str) -> None:
    """Pin the Pod of a slot to a node and let it run there, as Kueue, scheduler and kubelet do."""
    await rig.settle(0.1)
    pod = crew.pod_at(index)
    await rig.admin.patch(PODS, "default", pod, {"spec": {"nodeSelector": {HOST: where}, "schedulingGates": None}})
    await crew.run_on(pod, where)


async def started(rig: Rig, wanted: KubeObject, first: int = 0) -> Crew:
    """Bring a group to epoch 1; the Pod of index i is on node n(first + i)."""
    crew = await rig.with_pods(wanted)
    await rig.settle()
    for _, index in list(crew.pods):
        name = f"n{first + index}"
        found = node(name, pods=8, now="2026-01-01T00:00:00Z")
        found["spec"] = {**(found.get("spec") or {}), "taints": [THEIRS]}
        await rig.admin.create(NODES, None, found)
        await place(rig, crew, index, name)
    await rig.run_epoch(crew, 1)
    rig.requests.clear()
    return crew


async def taints(rig: Rig, name: str) -> list[KubeObject]:
    """Return the taints of a node."""
    found: list[KubeObject] = (await rig.admin.get(NODES, None, name))["spec"].get("taints") or []
    return found


async def is_clean(rig: Rig, name: str = "n0") -> bool:
    """Say whether nothing of ours stands on a node, and all of others does."""
    found = await rig.admin.get(NODES, None, name)
    metadata = found["metadata"]
    names = (*(metadata.get("labels") or ()), *(metadata.get("annotations") or ()))
    return found["spec"].get("taints") == [THEIRS] and wire.BAD_NODE not in names


def refuse(method: str, part: str, code: int = 403) -> Callable[[Request], Response | None]:
    """Refuse requests for nodes."""
    reason = {403: "Forbidden", 500: "InternalError"}[code]

    def fault(request: Request) -> Response | None:
        is_meant = request.method == method and part in request.path
        return refusal(code, reason) if is_meant else None

    return fault


async def test_a_pinned_pod_leaves_its_bad_node_once_that_is_tainted(rig: Rig) -> None:
    """The group waits for the replacement, which Kueue pins to another node, and then runs: one restart."""
    crew = await started(rig, manifest())
    failed = await rig.fail(crew)
    assert await taints(rig, "n0") == [THEIRS, OURS]
    assert await rig.is_ending(failed)
    writes = [r.path.split("?")[0] for r in rig.requests if r.method == "PATCH" and "/events" not in r.path]
    tainted, ended = writes.index("/api/v1/nodes/n0"), writes.index(f"/api/v1/namespaces/default/pods/{failed}")
    assert tainted < ended, "a Pod that ends BEFORE the taint comes back to its node"
    (told,) = await rig.events("NodeTainted")
    assert told["note"] == "node n0 is tainted for 600 s at most, so that the queue moves its pod"
    (why,) = await rig.events("PodLeavesNode")
    assert why["note"].startswith(f"pod {failed} is replaced: node n0 is bad, and tainted for the queue")
    await rig.meet(crew, 2)
    assert await crew.epochs() == (1, 1), "it must not sync with a Pod that is about to end"
    await crew.set_phase(failed, "Failed")
    await crew.replace("train-workers-0", 0)
    await place(rig, crew, 0, "n9")
    await rig.run_epoch(crew, 2)
    assert await crew.epochs() == (2, 1)
    assert await rig.events("PodStaysOnNode") == []


async def test_a_pod_alone_leaves_although_its_announcement_is_the_first_sign(rig: Rig) -> None:
    """Its epoch is not begun in the pass that sees it."""
    crew = await started(rig, manifest(pods=1))
    failed = crew.pod_at(0)
    await crew.set_worker(failed, run=1, exit_code=1)
    await rig.announce(crew, failed, 2)
    assert await crew.epochs() == (1, 1)
    assert await rig.is_ending(failed)


async def test_with_an_escalation(rig: Rig) -> None:
    """A step InPlace is used up, and the Pod leaves all the same."""
    crew = await started(rig, manifest(ESCALATION="InPlace=3/3600"))
    failed = await rig.fail(crew)
    assert await rig.is_ending(failed)
    steps = [use["rung"] for use in (await crew.status())[wire.ESCALATION_USES]]
    assert steps == ["InPlace", "LeaveNode"]


@pytest.mark.parametrize(
    ("why", "end"),
    [
        ("its time is over", lambda rig, crew: rig.settle(600)),
        ("the jobset is deleted", lambda rig, crew: rig.admin.delete(JOBSETS, "default", "train")),
        ("the annotation is gone", lambda rig, crew: rig.annotate({wire.BAD_NODES: None})),
        ("it has finished", lambda rig, crew: crew.finish_job("train-workers-0", "Complete")),
    ],
)
async def test_endings(rig: Rig, why: str, end: Callable[[Rig, Crew], Awaitable[None]]) -> None:
    """Each removes the taint within seconds, and nothing of ours is left; until then it stays."""
    crew = await started(rig, manifest())
    await rig.fail(crew)
    await rig.settle(300)
    assert await taints(rig, "n0") == [THEIRS, OURS]
    await end(rig, crew)
    await rig.settle(CHECKED_S)
    assert await is_clean(rig), why
    rig.requests.clear()
    await rig.settle(300)
    assert rig.writes("/nodes/n0") == 0, "what is gone is not written again"


@pytest.mark.parametrize(("limits", "is_kept"), [(LIMITS, True), (None, False), (TaintLimits(2, 60), False)])
async def test_the_next_leader_knows_all_from_the_node(limits: TaintLimits | None, *, is_kept: bool) -> None:
    """A controller that died leaves a taint; the next keeps it to its end, or removes it where the option is off."""
    rig = Rig()
    dying = rig.controller(taint_limits=LIMITS, leader_elect=False)
    async with background(rig.server.run()):
        async with background(dying.run()):
            await rig.settle()
            await rig.fail(await started(rig, manifest()))
        await rig.settle(100)
        assert await taints(rig, "n0") == [THEIRS, OURS]
        async with background(rig.controller(taint_limits=limits, on_cluster=True, leader_elect=False).run()):
            await rig.settle(CHECKED_S)
            assert await is_clean(rig) is not is_kept
            await rig.settle(500)
            assert await is_clean(rig)


async def test_a_jobset_that_went_while_no_controller_ran() -> None:
    """What stands on the node is enough to end its taint."""
    rig = Rig()
    async with background(rig.server.run()):
        async with background(rig.controller(taint_limits=LIMITS, leader_elect=False).run()):
            await rig.settle()
            await rig.fail(await started(rig, manifest()))
        await rig.admin.delete(JOBSETS, "default", "train")
        async with background(rig.controller(taint_limits=LIMITS, leader_elect=False).run()):
            await rig.settle(CHECKED_S)
            assert await is_clean(rig)


async def test_by_default_no_node_is_tainted() -> None:
    """The Pod restarts where it is, as before; taints that are left are asked for where there is the right."""
    async with running_rig(on_cluster=True) as rig:
        crew = await started(rig, manifest())
        failed = await rig.fail(crew)
        await rig.run_epoch(crew, 2)
        assert await crew.epochs() == (2, 1)
        assert (await is_clean(rig), await rig.is_ending(failed)) == (True, False)
        (told,) = await rig.events("PodStaysOnNode")
        assert "with Kueue's Topology Aware Scheduling taint or drain the node" in told["note"]


async def test_a_pod_that_a_person_pinned_stays(rig: Rig) -> None:
    """Nothing would move it, so its node is not tainted."""
    wanted = manifest()
    del wanted["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["metadata"]
    crew = await started(rig, wanted)
    failed = await rig.fail(crew)
    assert (await is_clean(rig), await rig.is_ending(failed)) == (True, False)


async def test_without_the_right_an_event_says_so_once(rig: Rig) -> None:
    """The group restarts in place, and nothing is asked again before the next failure."""
    crew = await started(rig, manifest())
    rig.fault = refuse("PATCH", "/nodes/")
    failed = await rig.fail(crew)
    await rig.run_epoch(crew, 2)
    assert await crew.epochs() == (2, 1)
    assert not await rig.is_ending(failed)
    (told,) = await rig.events("PodStaysOnNode")
    assert "node n0 is bad, but was not tainted: " in told["note"]
    assert told["note"].endswith(f"; apply deploy/overlays/taints; pod {failed} restarts there")
    await rig.settle(10)
    rig.requests.clear()
    await rig.settle(300)
    assert [r for r in rig.requests if "/nodes" in r.path] == []


async def test_no_more_nodes_than_the_controller_may_taint(rig: Rig) -> None:
    """A user with many JobSets that fail on purpose holds so many nodes, and the next Pod restarts in place."""
    for number in range(3):
        crew = await started(rig, manifest(f"train-{number}", pods=1), first=number)
        failed = await rig.fail(crew)
        assert await rig.is_ending(failed) is (number < 2)
    assert [await is_clean(rig, f"n{number}") for number in range(3)] == [False, False, True]
    (told,) = await rig.events("PodStaysOnNode")
    assert "2 nodes are tainted, the most that the controller may taint" in told["note"]


async def test_no_more_nodes_than_the_jobset_may_avoid(rig: Rig) -> None:
    """Of three nodes that is one, as without taints; the one before keeps its taint until its end."""
    crew = await started(rig, manifest())
    first = await rig.fail(crew, 0)
    await crew.set_phase(first, "Failed")
    await crew.replace("train-workers-0", 0)
    await place(rig, crew, 0, "n9")
    await rig.run_epoch(crew, 2)
    second = await rig.fail(crew, 1)
    assert not await rig.is_ending(second)
    assert await is_clean(rig, "n1")
    (told,) = await rig.events("PodStaysOnNode")
    assert "1 nodes are tainted for this jobset, the most that it may avoid" in told["note"]


async def test_a_write_whose_answer_is_lost_leaves_no_taint_behind(rig: Rig) -> None:
    """The Pod restarts in place; the taint that came all the same ends as any other."""
    crew = await started(rig, manifest())
    late = {"s": 30.0}
    rig.answer_latency_s = lambda r: late["s"] if r.method == "PATCH" and "/nodes/" in r.path else 0.0
    failed = await rig.fail(crew, seconds=4)
    late["s"] = 0.0
    await rig.run_epoch(crew, 2)
    assert (await crew.epochs(), await rig.is_ending(failed)) == ((2, 1), False)
    assert await taints(rig, "n0") == [THEIRS, OURS]
    await rig.settle(620)
    assert await is_clean(rig)


async def test_a_server_that_fails_while_a_taint_is_to_go(rig: Rig) -> None:
    """It is tried again, one request at a time."""
    await rig.fail(await started(rig, manifest()))
    rig.fault = refuse("PATCH", "/nodes/", 500)
    await rig.settle(600)
    rig.requests.clear()
    await rig.settle(300)
    assert 5 <= sum(r.method == "PATCH" and "/nodes/" in r.path for r in rig.requests) <= 40
    rig.fault = lambda _: None
    await rig.settle(60)
    assert await is_clean(rig)


async def test_a_marked_node_is_left_too(rig: Rig) -> None:
    """Kueue moves the Pod from any node with a taint, so a cordon needs none of ours."""
    crew = await started(rig, manifest(bad_nodes="8/3600"))
    await rig.admin.patch(NODES, None, "n0", {"spec": {"unschedulable": True}})
    failed = await rig.fail(crew)
    assert await rig.is_ending(failed)
    assert OURS not in await taints(rig, "n0")


async def left_behind() -> list[str]:
    """Return the endings after which a taint is still there: of its time, its JobSet, a leader, and a lost answer."""
    left = []
    async with running_rig(taint_limits=LIMITS) as rig:
        await rig.fail(await started(rig, manifest()))
        await rig.settle(620)
        left += [] if await is_clean(rig) else ["time"]
    async with running_rig(taint_limits=LIMITS) as rig:
        await rig.fail(await started(rig, manifest()))
        await rig.admin.delete(JOBSETS, "default", "train")
        await rig.settle(CHECKED_S)
        left += [] if await is_clean(rig) else ["jobset"]
    rig = Rig()
    async with background(rig.server.run()):
        async with background(rig.controller(taint_limits=LIMITS, leader_elect=False).run()):
            await rig.settle()
            await rig.fail(await started(rig, manifest()))
        async with background(rig.controller(on_cluster=True, leader_elect=False).run()):
            await rig.settle(CHECKED_S)
        left += [] if await is_clean(rig) else ["leader"]
    async with running_rig(taint_limits=LIMITS) as rig:
        crew = await started(rig, manifest())
        rig.answer_latency_s = lambda r: 30.0 if r.method == "PATCH" and "/nodes/" in r.path else 0.0
        await rig.fail(crew, seconds=4)
        await rig.settle(700)
        left += [] if await is_clean(rig) else ["answer"]
    return left


async def _places_first(original: Any, self: NodeTaints, node: str, jobset: Any, nodes_max: int) -> TaintLimits:
    try:
        limits: TaintLimits = await original(self, node, jobset, nodes_max)
    except BaseException:
        self._known.pop(node, None)
        raise
    return limits


async def _finds_nothing(original: Any, self: NodeTaints) -> bool:
    self._unread = ""
    return True


@pytest.mark.parametrize(
    ("why", "mistakes", "left"),
    [
        ("as it is", (), []),
        (
            "a taint without an end",
            (instead_of(is_wanted, lambda original, limits, node, taint, jobset, now: jobset is not None),),
            ["time", "leader", "answer"],
        ),
        (
            "a taint that outlives its jobset",
            (instead_of(Term._is_taint_wanted, lambda original, self, node, taint: True),),
            ["time", "jobset", "leader", "answer"],
        ),
        ("a leader that knows its own taints alone", (instead_of(NodeTaints._find, _finds_nothing),), ["leader"]),
        (
            "a taint that is noted once its write is answered",
            (instead_of(NodeTaints.place, _places_first),),
            ["answer"],
        ),
    ],
)
async def test_planted_bugs_are_caught(why: str, mistakes: tuple[Mistake, ...], left: list[str]) -> None:
    """A taint left behind is seen."""
    with planted(*mistakes) as called:
        assert await left_behind() == left, why
    assert called == set(mistakes)
