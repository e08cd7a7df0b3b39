"""Taints of bad nodes with the whole controller: who leaves, what bounds it, and that no taint is left behind."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from inplace.common.jobset.node_taints import TaintLimits, is_wanted
from inplace.common.kube.http.request import Request, Response
from inplace.common.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, JOBSETS, NAMESPACES, NODES, PODS, KubeObject
from inplace.common.wire import names as wire
from inplace.controller.act.node_tainting import NodeTaints
from inplace.controller.term import Term
from inplace.simulator.cluster.nodes import node
from tests.common.kube.answers import refusal
from tests.controller.background import background
from tests.controller.crew import Crew, exists
from tests.controller.queued import HOST, KUEUE, admit, in_namespace, manifest, place
from tests.controller.rig import Rig, running_rig
from tests.planted.mistake import Mistake, instead_of, planted

pytestmark = pytest.mark.virtual_time

LIMITS = TaintLimits(4, 600, frozenset({"default"}))
OURS = {"key": wire.BAD_NODE, "effect": "NoSchedule"}
THEIRS = {"key": "broken", "effect": "PreferNoSchedule"}
N0 = {"operator": "In", "values": ["n0"]}
CHECKED_S = 6.0  # after which a taint that is not wanted has gone
CONTROL_PLANE = "node-role.kubernetes.io/control-plane"


@pytest.fixture
def rig() -> AbstractAsyncContextManager[Rig]:
    """Return an API server with a running controller that may taint nodes."""
    return running_rig(taint_limits=LIMITS)


async def started(rig: Rig, wanted: KubeObject, first: int = 0, *, is_admitted: bool = True) -> Crew:
    """Bring a group to epoch 1; the Pod of index i is on node n(first + i)."""
    namespace = wanted["metadata"]["namespace"]
    if namespace not in {found["metadata"]["name"] for found in (await rig.admin.list(NAMESPACES))["items"]}:
        await rig.admin.create(NAMESPACES, None, {"metadata": {"name": namespace}})
    crew = await rig.with_pods(wanted)
    await rig.settle()
    if not await exists(rig.admin, CUSTOM_RESOURCE_DEFINITIONS, "", KUEUE["metadata"]["name"]):
        await rig.admin.create(CUSTOM_RESOURCE_DEFINITIONS, None, KUEUE)
    if is_admitted:
        await admit(crew)
    known = {found["metadata"]["name"] for found in (await rig.admin.list(NODES))["items"]}
    for _, index in list(crew.pods):
        name = f"n{first + index}"
        if name not in known:
            found = node(name, pods=8, now="2026-01-01T00:00:00Z")
            found["spec"] = {**(found.get("spec") or {}), "taints": [THEIRS]}
            await rig.admin.create(NODES, None, found)
        await rig.settle(0.1)
        await place(crew, index, name)
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


async def test_a_taint_ends_with_its_jobset(rig: Rig) -> None:
    """Within seconds, and nothing of ours is left or written again; until then it stays."""
    crew = await started(rig, manifest())
    await rig.fail(crew)
    await rig.settle(300)
    assert await taints(rig, "n0") == [THEIRS, OURS]
    await rig.admin.delete(JOBSETS, "default", "train")
    await rig.settle(CHECKED_S)
    assert await is_clean(rig)
    rig.requests.clear()
    await rig.settle(300)
    assert rig.writes("/nodes/n0") == 0, "what is gone is not written again"


@pytest.mark.parametrize(("limits", "is_kept"), [(LIMITS, True), (None, False), (TaintLimits(4, 60), False)])
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


async def refused(rig: Rig, crew: Crew, name: str = "n0") -> str:
    """Let the worker of the first Pod die; return why its node is not tainted, and that it restarts there."""
    failed = await rig.fail(crew)
    told = [
        one["note"] for one in await rig.events("PodStaysOnNode") if one["regarding"]["namespace"] == crew.namespace
    ]
    pod = await rig.admin.get(PODS, crew.namespace, failed)
    assert "activeDeadlineSeconds" not in pod["spec"], told
    assert await is_clean(rig, name)
    return str(told[-1])


@pytest.mark.attack
async def test_a_tenant_who_names_a_node_cannot_have_it_tainted(rig: Rig) -> None:
    """Kueue's annotation and a selector of one host are his own words; not even those of a trusted namespace count."""
    wanted = manifest(pods=1)
    spec = wanted["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    spec["nodeSelector"] = {HOST: "n0"}
    crew = await started(rig, wanted)
    assert "may run on node n0 alone" in await refused(rig, crew)


@pytest.mark.attack
@pytest.mark.parametrize(
    "changes",
    [
        None,
        {"conditions": []},
        {"conditions": [{"type": "Admitted", "status": "False"}]},
        {"admission": {}},
        {"admission": {"podSetAssignments": [{"name": "workers"}]}},
        {"admission": {"podSetAssignments": [{"name": "others", "topologyAssignment": {}}]}},
    ],
)
async def test_kueues_annotation_is_no_evidence_without_kueue(rig: Rig, changes: KubeObject | None) -> None:
    """Only a Workload that Kueue admitted, with hosts for this replicatedJob, says that Kueue chose the node."""
    crew = await started(rig, manifest(pods=1), is_admitted=False)
    if changes is not None:
        await admit(crew, **changes)
    assert "expected Kueue to have chosen the node" in await refused(rig, crew)


@pytest.mark.attack
async def test_a_workload_of_another_jobset_says_nothing(rig: Rig) -> None:
    """It counts by the UID of its JobSet, in the JobSet's own namespace."""
    other = await started(rig, in_namespace("team-b", pods=1))
    await rig.admin.delete(JOBSETS, "team-b", "train")
    crew = await started(rig, manifest(pods=1), first=1, is_admitted=False)
    assert other.name == crew.name
    assert "expected Kueue to have chosen the node" in await refused(rig, crew, "n1")


@pytest.mark.attack
async def test_one_namespace_alone_taints_nothing(rig: Rig) -> None:
    """Its verdict is for its own Pods; what it fails with other JobSets is no second opinion."""
    first = await started(rig, in_namespace("team-a", name="one", pods=1))
    words = await refused(rig, first)
    assert "expected JobSets of two namespaces to find it bad" in words
    assert "saw those of team-a alone" in words
    second = await started(rig, in_namespace("team-a", name="two", pods=1))
    assert "saw those of team-a alone" in await refused(rig, second)


async def test_two_namespaces_taint_a_node(rig: Rig) -> None:
    """The second one's failure taints the node on which the first one's worker failed, too."""
    await refused(rig, await started(rig, in_namespace("team-a", pods=1)))
    failed = await rig.fail(await started(rig, in_namespace("team-b", pods=1)))
    assert await taints(rig, "n0") == [THEIRS, OURS]
    assert "activeDeadlineSeconds" in (await rig.admin.get(PODS, "team-b", failed))["spec"]


def affinity(kind: str, rules: Any) -> KubeObject:
    """Return a Pod's node affinity, `required` or `preferred`."""
    return {"affinity": {"nodeAffinity": {f"{kind}DuringSchedulingIgnoredDuringExecution": rules}}}


@pytest.mark.attack
@pytest.mark.parametrize(
    "named",
    [
        {"nodeSelector": {HOST: "n0"}},
        {"nodeName": "n0"},
        affinity("required", {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name"} | N0]}]}),
        affinity("preferred", [{"weight": 1, "preference": {"matchExpressions": [{"key": HOST} | N0]}}]),
    ],
)
async def test_a_tenant_who_names_a_node_is_no_second_opinion(rig: Rig, named: KubeObject) -> None:
    """His JobSet fails on a node that he chose, so that another namespace's verdict would suffice."""
    wanted = in_namespace("evil", pods=1)
    wanted["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"] |= named
    await rig.fail(await started(rig, wanted))
    assert "saw those of team-b alone" in await refused(rig, await started(rig, in_namespace("team-b", pods=1)))


@pytest.mark.attack
@pytest.mark.parametrize("mark", ["label", "taint"])
async def test_a_node_of_the_control_plane_is_never_tainted(rig: Rig, mark: str) -> None:
    """Whoever finds it bad; it counts for no limit either."""
    crew = await started(rig, manifest(pods=1))
    taint = {"key": CONTROL_PLANE, "effect": "PreferNoSchedule"}  # no mark for which a Pod would leave
    change: KubeObject = {"spec": {"taints": [THEIRS, taint]}}
    if mark == "label":
        change = {"metadata": {"labels": {CONTROL_PLANE: ""}}}
    await rig.admin.patch(NODES, None, "n0", change)
    failed = await rig.fail(crew)
    assert not await rig.is_ending(failed)
    assert OURS not in await taints(rig, "n0")
    (told,) = await rig.events("PodStaysOnNode")
    assert "saw one of the control plane" in told["note"]
    for number in (1, 2):
        crew = await started(rig, manifest(f"train-{number}", pods=1), first=number)
        assert await rig.is_ending(await rig.fail(crew)), "the share is not used up by what was refused"


@pytest.mark.attack
async def test_one_namespace_cannot_use_up_the_taints() -> None:
    """It has half of them, even a trusted one; the next namespace's bad node is tainted."""
    async with running_rig(taint_limits=TaintLimits(4, 600, frozenset({"default", "team-b"}))) as rig:
        for number in range(3):
            crew = await started(rig, manifest(f"train-{number}", pods=1), first=number)
            failed = await rig.fail(crew)
            assert await rig.is_ending(failed) is (number < 2)
        (told,) = await rig.events("PodStaysOnNode")
        assert "2 nodes are tainted for namespace default, the most of one namespace" in told["note"]
        await rig.fail(await started(rig, in_namespace("team-b", pods=1), first=3))
        assert [await is_clean(rig, f"n{number}") for number in range(4)] == [False, False, True, False]


async def test_no_more_nodes_than_the_controller_may_taint() -> None:
    """Of all namespaces together; the next Pod restarts in place."""
    async with running_rig(taint_limits=TaintLimits(2, 600, frozenset({"a", "b", "c"}))) as rig:
        for number, namespace in enumerate("abc"):
            await rig.fail(await started(rig, in_namespace(namespace, pods=1), first=number))
        assert [await is_clean(rig, f"n{number}") for number in range(3)] == [False, False, True]
        (told,) = await rig.events("PodStaysOnNode")
        assert "2 nodes are tainted, the most that the controller may taint" in told["note"]


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


async def _places_first(original: Any, self: NodeTaints, node: str, jobset: Any, action: Any) -> TaintLimits:
    try:
        limits: TaintLimits = await original(self, node, jobset, action)
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
