"""Exclusive placement: the fields of Pods, the order in which gates are lifted, and the waiting Pods."""

from typing import Any

import msgspec
import pytest

from inplace.common.jobset.kinds import POD_CODEC, Pod
from inplace.common.kube.resources import NODES, PODS, KubeObject
from inplace.common.wire import names as wire
from inplace.controller.api.domains import Domains
from inplace.controller.plan.actions import DeleteJob, LiftGate
from inplace.controller.plan.placement import LOOK_AGAIN_S, follower_to_read
from tests.controller.crew import Crew
from tests.controller.manifests import changed, jobset, replicated_job
from tests.controller.plan.planner_world import settled
from tests.controller.rig import Rig

pytestmark = pytest.mark.virtual_time

RACK = "example.com/rack"
EXCLUSIVE = {wire.EXCLUSIVE_TOPOLOGY: RACK}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
METADATA = "spec.replicatedJobs.0.template.metadata"
POD_SPEC = "spec.replicatedJobs.0.template.spec.template.spec"


def exclusive(**options: Any) -> KubeObject:
    """Return a JobSet of two Jobs, each in a rack of its own."""
    manifest = jobset(**({"strategy": None, "jobs": [replicated_job(replicas=2, pods=3)]} | options))
    return changed(manifest, "metadata.annotations", dict(EXCLUSIVE))


def built(manifest: KubeObject) -> KubeObject:
    """Return the first Job."""
    world = settled(manifest)
    return world.jobs["train-workers-0"]


def test_pods_carry_affinity_and_gate() -> None:
    """Pods have affinity to their Job, anti-affinity to all others in any namespace, a gate, and no label for it."""
    job = built(exclusive())
    pod = job["spec"]["template"]
    assert pod["spec"]["schedulingGates"] == [{"name": wire.PLACEMENT_GATE}]
    key = job["metadata"]["labels"][wire.JOB_KEY]
    (together,) = pod["spec"]["affinity"]["podAffinity"][REQUIRED]
    (apart,) = pod["spec"]["affinity"]["podAntiAffinity"][REQUIRED]
    assert together["topologyKey"] == apart["topologyKey"] == RACK
    assert together["namespaceSelector"] == apart["namespaceSelector"] == {}
    own = {"key": wire.JOB_KEY, "operator": "In", "values": [key]}
    assert together["labelSelector"] == {"matchExpressions": [own]}
    assert apart["labelSelector"]["matchExpressions"] == [
        {"key": wire.JOB_KEY, "operator": "Exists"},
        own | {"operator": "NotIn"},
    ]
    for metadata in (job["metadata"], pod["metadata"]):
        assert metadata["annotations"][wire.EXCLUSIVE_TOPOLOGY] == RACK
        assert wire.EXCLUSIVE_TOPOLOGY not in metadata["labels"]


def test_the_users_affinity_and_gates_stay() -> None:
    """Our affinity and gates are appended to the user's."""
    manifest = changed(exclusive(), f"{POD_SPEC}.affinity", {"podAffinity": {REQUIRED: ["theirs"]}, "nodeAffinity": {}})
    spec = built(changed(manifest, f"{POD_SPEC}.schedulingGates", [{"name": "theirs"}]))["spec"]["template"]["spec"]
    assert spec["affinity"]["podAffinity"][REQUIRED][0] == "theirs"
    assert len(spec["affinity"]["podAffinity"][REQUIRED]) == 2
    assert spec["affinity"]["nodeAffinity"] == {}
    assert [gate["name"] for gate in spec["schedulingGates"]] == ["theirs", wire.PLACEMENT_GATE]


def test_the_node_selector_strategy() -> None:
    """The strategy adds a selector and a toleration for prepared nodes; no affinity, no gate."""
    manifest = changed(exclusive(), "metadata.annotations", EXCLUSIVE | {wire.NODE_SELECTOR_STRATEGY: "true"})
    spec = built(changed(manifest, f"{POD_SPEC}.nodeSelector", {"gpu": "yes"}))["spec"]["template"]["spec"]
    assert spec["nodeSelector"] == {"gpu": "yes", wire.NAMESPACED_JOB: "default_train-workers-0"}
    assert spec["tolerations"] == [{"key": wire.NO_SCHEDULE, "operator": "Exists", "effect": "NoSchedule"}]
    assert {"affinity", "schedulingGates"} & spec.keys() == set()


@pytest.mark.parametrize(("where", "gated"), [("metadata", True), (METADATA, False)])
def test_the_strategy_counts_beside_the_topology_only(where: str, gated: bool) -> None:
    """The template's topology wins over the JobSet's, and takes the strategy from where it stands itself."""
    both = {wire.EXCLUSIVE_TOPOLOGY: "zone", wire.NODE_SELECTOR_STRATEGY: ""}
    manifest = changed(exclusive(), "metadata.annotations", both)
    manifest = changed(manifest, METADATA, {"annotations": {wire.EXCLUSIVE_TOPOLOGY: RACK} if gated else both})
    assert ("schedulingGates" in built(manifest)["spec"]["template"]["spec"]) is gated, where


def test_without_the_annotation_nothing_is_added() -> None:
    """The strategy annotation without a topology changes nothing."""
    manifest = changed(jobset(strategy=None), "metadata.annotations", {wire.NODE_SELECTOR_STRATEGY: "true"})
    assert {"affinity", "schedulingGates", "nodeSelector"} & built(manifest)["spec"]["template"]["spec"].keys() == set()


def pod(index: int | None, *, node: str | None = None, gates: tuple[str, ...] = (), **parts: Any) -> KubeObject:
    """Return a Pod of a Job."""
    annotations = {} if index is None else {wire.JOB_COMPLETION_INDEX: str(index)}
    metadata = {"name": f"p{index}", "uid": f"u{index}", "resourceVersion": "1", "annotations": annotations}
    spec = {"nodeName": node, "schedulingGates": [{"name": name} for name in gates]}
    return {"metadata": metadata | parts.pop("metadata", {}), "spec": spec, "status": parts}


OURS = (wire.PLACEMENT_GATE,)


@pytest.mark.parametrize(
    ("pods", "domains", "lifted"),
    [
        ([pod(0, gates=OURS), pod(1, gates=OURS)], {}, {"p0": ()}),
        ([pod(0), pod(1, gates=OURS)], {("n", RACK): "r1"}, {}),
        ([pod(0, node="n"), pod(1, gates=OURS), pod(2)], {("n", RACK): "r1"}, {"p1": ((RACK, "r1"),)}),
        ([pod(1, gates=OURS)], {}, {}),
        ([pod(0, node="n", phase="Failed"), pod(1, gates=OURS)], {("n", RACK): "r1"}, {}),
        ([pod(0, node="n", phase="Succeeded"), pod(1, gates=OURS)], {("n", RACK): "r1"}, {}),
        (
            [pod(0, node="m", phase="Failed"), pod(0, node="n"), pod(1, gates=OURS)],
            {("n", RACK): "r1", ("m", RACK): "r2"},
            {"p1": ((RACK, "r1"),)},
        ),
        ([pod(0, node="n", metadata={"deletionTimestamp": "x"}), pod(1, gates=OURS)], {("n", RACK): "r1"}, {}),
        ([pod(0, node="n"), pod(0, node="m"), pod(1, gates=OURS)], {("n", RACK): "r1", ("m", RACK): "r1"}, {}),
        ([pod(None, gates=OURS)], {}, {"pNone": ()}),
        ([pod(0, gates=("theirs",)), pod(1, gates=("theirs",))], {}, {}),
    ],
)
def test_leaders_first_then_followers(pods: list[KubeObject], domains: Any, lifted: dict[str, Any]) -> None:
    """A leader's gate is lifted at once; followers follow one living leader that has a node; others' gates stay."""
    world = settled(exclusive())
    world.pods["train-workers-0"] = pods
    world.domains = domains
    actions = [action for action in world.plan().actions if isinstance(action, LiftGate)]
    assert {action.pod.metadata.name: action.selector for action in actions} == lifted
    world.settle()
    assert not [action for action in world.plan().actions if isinstance(action, LiftGate)]


UNSCHEDULABLE = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
ASTRAY = pod(1, conditions=UNSCHEDULABLE)


@pytest.mark.parametrize(
    ("pods", "asked", "is_deleted"),
    [
        ([pod(0, node="n"), ASTRAY], "r0", True),
        ([pod(0, node="n"), pod(2, gates=OURS), ASTRAY], "r0", True),
        ([pod(0, node="n"), pod(1, gates=("theirs",), conditions=UNSCHEDULABLE)], "r0", True),
        ([pod(0, node="n"), ASTRAY], "r1", False),
        ([pod(0, node="n"), ASTRAY], "", False),
        ([pod(0, node="n"), ASTRAY], None, False),
        ([pod(0, node="n"), pod(1, node="o")], "r0", False),
        ([pod(0), ASTRAY], "r0", False),
        ([ASTRAY], "r0", False),
        ([pod(0, node="unlabelled"), ASTRAY], "r0", False),
        ([pod(0, node="n"), pod(1, conditions=UNSCHEDULABLE, phase="Failed")], "r0", False),
    ],
)
def test_a_leader_that_was_replaced_elsewhere(pods: list[KubeObject], asked: str | None, is_deleted: bool) -> None:
    """Pods that wait for a domain which their leader has left can never run: their Job is made anew, with a word."""
    world = settled(exclusive())
    world.pods["train-workers-0"] = pods
    world.domains = {("n", RACK): "r1"}
    world.asked_domains = {} if asked is None else {"u1": asked}
    planned = world.plan()
    deleted = [action for action in planned.actions if isinstance(action, DeleteJob)]
    assert [(action.name, action.why) for action in deleted] == [("train-workers-0", DeleteJob.ASTRAY)] * is_deleted
    assert [warning.reason for warning in planned.warnings] == ["ExclusivePlacementFailed"] * is_deleted
    world.carry_out(planned, instant_deletes=False)
    assert not [action for action in world.plan().actions if isinstance(action, DeleteJob)]


@pytest.mark.parametrize(
    ("pods", "name"),
    [
        ([pod(0, node="n"), pod(1), ASTRAY], "p1"),
        ([pod(0, node="n"), pod(1)], None),
        ([pod(0), ASTRAY], None),
        ([pod(0, node="n", phase="Failed"), ASTRAY], None),
        ([pod(0, node="n"), pod(1, gates=OURS, conditions=UNSCHEDULABLE)], None),
        ([pod(0, node="n"), pod(1, node="n", conditions=UNSCHEDULABLE)], None),
        ([pod(0, node="n"), pod(None, conditions=UNSCHEDULABLE)], None),
    ],
)
def test_whose_selector_is_read(pods: list[KubeObject], name: str | None) -> None:
    """One Pod is read of those that the scheduler has no node for, once their leader has one; no other Pod ever is."""
    found = follower_to_read(msgspec.convert(each, Pod) for each in pods)
    assert (found.metadata.name if found else None) == name


def test_pods_without_a_node_are_looked_at_again() -> None:
    """While followers wait for the scheduler the planner looks again, and when they have their nodes it does not."""
    world = settled(exclusive())
    world.domains = {("n", RACK): "r1"}
    for node, again_s in ((None, LOOK_AGAIN_S), ("n", None)):
        world.pods["train-workers-0"] = [pod(0, node="n"), pod(1, node=node)]
        assert (world.plan().actions, world.plan().requeue_after_s) == ((), again_s)


async def test_a_selector_is_read_once(rig: Rig) -> None:
    """A Pod's selector is read once, and that of a namesake for itself; a Pod that is gone asks for nothing."""
    domains = Domains(rig.admin)
    for rack in ("r1", "r2"):
        spec = {"containers": [{"name": "w", "image": "i"}], "nodeSelector": {RACK: rack}}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
        found = POD_CODEC.convert(await rig.admin.create(PODS, "default", body))
        assert [await domains.asked_by(found, RACK), await domains.asked_by(found, "zone")] == [rack, ""]
        await rig.admin.delete(PODS, "default", "p", grace_period_s=0)
        assert await domains.asked_by(found, RACK) == rack
    assert await Domains(rig.admin).asked_by(found, RACK) == ""


def test_a_node_without_the_label_is_said() -> None:
    """Followers wait, a message names the node and its missing label, and the planner looks again later."""
    world = settled(exclusive())
    world.pods["train-workers-0"] = [pod(0, node="n"), pod(1, gates=OURS)]
    planned = world.plan()
    assert planned.actions == ()
    assert planned.requeue_after_s is not None
    (warning,) = planned.warnings
    assert f"expected label {RACK} on node n" in warning.message


async def gates_of(rig: Rig, crew: Crew) -> dict[tuple[str, int], KubeObject]:
    """Return the spec of every Pod, by its slot."""
    return {slot: (await rig.admin.get(PODS, "default", name))["spec"] for slot, name in crew.pods.items()}


async def test_gates_in_the_cluster(rig: Rig) -> None:
    """Leaders' gates are lifted; when a leader has a node, its followers' are, with a selector for its rack."""
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": {RACK: "r1"}}}
    await rig.admin.create(NODES, None, node)
    crew = await rig.submit(exclusive())
    for name, job in (await crew.jobs()).items():
        for index in (2, 1, 0):
            await crew.make_pod(job, index)
        assert job["metadata"]["name"] == name
    await rig.settle()
    specs = await gates_of(rig, crew)
    assert {slot for slot, spec in specs.items() if not spec.get("schedulingGates")} == {
        ("train-workers-0", 0),
        ("train-workers-1", 0),
    }
    leader = crew.pods["train-workers-0", 0]
    await crew.bind(leader, "n1")
    await rig.settle()
    specs = await gates_of(rig, crew)
    for index in (1, 2):
        follower = specs["train-workers-0", index]
        assert not follower.get("schedulingGates")
        assert follower["nodeSelector"] == {RACK: "r1"}
        assert specs["train-workers-1", index]["schedulingGates"] == [{"name": wire.PLACEMENT_GATE}]
