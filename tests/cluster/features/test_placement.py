"""Exclusive placement: one Job in one topology domain, by gates that the controller lifts or by node selector."""

from __future__ import annotations

import hashlib
from typing import Any, Final

import pytest

from inplace.common.kube.resources import NODES, PODS, KubeObject
from inplace.common.wire import names as wire
from testbed.waiting import eventually
from tests.cluster.features.stage import Stage
from tests.controller.manifests import changed, jobset, replicated_job

pytestmark = pytest.mark.asyncio(loop_scope="session")

RACK: Final = "example.com/rack"
TOPOLOGY: Final = "alpha.jobset.sigs.k8s.io/exclusive-topology"
SELECTOR: Final = "alpha.jobset.sigs.k8s.io/node-selector"
JOB: Final = "train-workers-0"


def placed(*jobs: KubeObject, strategy: str | None = None, **annotations: str) -> KubeObject:
    """Return a JobSet that is placed exclusively."""
    manifest = jobset(strategy=strategy, jobs=list(jobs) or None)
    return changed(manifest, "metadata.annotations", {TOPOLOGY: RACK} | annotations)


def for_job(job: KubeObject, annotations: dict[str, str]) -> KubeObject:
    """Return a replicatedJob with annotations of its own."""
    return changed(job, "template.metadata", {"annotations": annotations})


def pod_spec(job: KubeObject) -> KubeObject:
    """Return the Pods' spec."""
    found: KubeObject = job["spec"]["template"]["spec"]
    return found


async def test_affinity_and_gate(stage: Stage) -> None:
    """Pods have affinity to their Job's Pods and anti-affinity to all others, in every namespace, and a gate."""
    job = (await stage.start(placed()))[JOB]
    spec = pod_spec(job)
    key = hashlib.sha1(f"{stage.namespace}/{JOB}".encode(), usedforsecurity=False).hexdigest()
    field = "requiredDuringSchedulingIgnoredDuringExecution"
    (near,), (far,) = (spec["affinity"][kind][field] for kind in ("podAffinity", "podAntiAffinity"))
    for term in (near, far):
        assert (term["topologyKey"], term["namespaceSelector"]) == (RACK, {})
    own = {"key": wire.JOB_KEY, "operator": "In", "values": [key]}
    assert near["labelSelector"]["matchExpressions"] == [own]
    others = [{"key": wire.JOB_KEY, "operator": "Exists"}, own | {"operator": "NotIn"}]
    assert far["labelSelector"]["matchExpressions"] == others
    assert spec["schedulingGates"] == [{"name": "inplace.dev/exclusive-placement"}]
    assert job["metadata"]["annotations"][TOPOLOGY] == RACK
    assert job["spec"]["template"]["metadata"]["annotations"][TOPOLOGY] == RACK
    assert TOPOLOGY not in job["metadata"]["labels"]


async def test_users_affinity_stays(stage: Stage) -> None:
    """Our affinity and gates are added to the template's."""
    job = replicated_job()
    mine: dict[str, Any] = {
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}]
                }
            }
        },
        "schedulingGates": [{"name": "example.com/quota"}],
    }
    for name, value in mine.items():
        job = changed(job, f"template.spec.template.spec.{name}", value)
    spec = pod_spec((await stage.start(placed(job)))[JOB])
    assert spec["affinity"]["nodeAffinity"] == mine["affinity"]["nodeAffinity"]
    assert {gate["name"] for gate in spec["schedulingGates"]} == {"example.com/quota", wire.PLACEMENT_GATE}


async def test_node_selector_strategy(stage: Stage) -> None:
    """Pods ask for the nodes that were labelled for their Job and tolerate their taint; no gate, no affinity."""
    job = (await stage.start(placed(**{SELECTOR: "true"})))[JOB]
    spec = pod_spec(job)
    assert spec["nodeSelector"] == {"alpha.jobset.sigs.k8s.io/namespaced-job": f"{stage.namespace}_{JOB}"}
    assert spec["tolerations"] == [
        {"key": "alpha.jobset.sigs.k8s.io/no-schedule", "operator": "Exists", "effect": "NoSchedule"}
    ]
    assert "affinity" not in spec
    assert "schedulingGates" not in spec
    assert job["metadata"]["annotations"][SELECTOR] == "true"


LEVELS: Final[dict[str, tuple[dict[str, str], dict[str, str], str]]] = {
    "of_the_jobset": ({TOPOLOGY: RACK}, {}, "gate"),
    "of_the_template": ({}, {TOPOLOGY: RACK}, "gate"),
    "the_templates_wins": ({TOPOLOGY: "zone"}, {TOPOLOGY: RACK}, "gate"),
    "selector_at_the_same_level": ({}, {TOPOLOGY: RACK, SELECTOR: ""}, "selector"),
    "selector_at_another_level": ({SELECTOR: ""}, {TOPOLOGY: RACK}, "gate"),
    "selector_alone": ({SELECTOR: ""}, {}, "nothing"),
    "neither": ({}, {}, "nothing"),
}


@pytest.mark.parametrize("name", LEVELS)
async def test_levels(stage: Stage, name: str) -> None:
    """The template's annotations win over the JobSet's, and a strategy counts beside its topology only."""
    of_the_jobset, of_the_template, wanted = LEVELS[name]
    manifest = jobset(strategy=None, jobs=[for_job(replicated_job(), of_the_template)])
    job = (await stage.start(changed(manifest, "metadata.annotations", of_the_jobset)))[JOB]
    spec = pod_spec(job)
    assert ("schedulingGates" in spec, "nodeSelector" in spec) == (wanted == "gate", wanted == "selector")
    if wanted == "gate":
        assert job["metadata"]["annotations"][TOPOLOGY] == RACK


async def test_one_replicated_job_of_two(stage: Stage) -> None:
    """A replicatedJob without the annotation is scheduled like other Pods."""
    jobs = await stage.start(
        jobset(strategy=None, jobs=[for_job(replicated_job("a"), {TOPOLOGY: RACK}), replicated_job("b")])
    )
    assert "schedulingGates" in pod_spec(jobs["train-a-0"])
    assert "schedulingGates" not in pod_spec(jobs["train-b-0"])


async def gates(stage: Stage, pod: str) -> list[str]:
    """Return the names of a Pod's gates."""
    spec = (await stage.client.get(PODS, stage.namespace, pod))["spec"]
    return [gate["name"] for gate in spec.get("schedulingGates") or ()]


async def node(stage: Stage, **labels: str) -> str:
    """Create a node of these labels."""
    name = f"node-{stage.namespace}{''.join(f'-{value}' for value in labels.values())}"
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
    await stage.client.create(NODES, None, body)
    return name


async def bind(stage: Stage, pod: str, node_name: str) -> None:
    """Schedule a Pod."""
    target = {"kind": "Node", "name": node_name}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod}, "target": target}
    await stage.client.raw("POST", f"/api/v1/namespaces/{stage.namespace}/pods/{pod}/binding", body=binding)


async def test_followers_follow_the_leader(stage: Stage) -> None:
    """The leader's gate is lifted at once, the others' when it has a node, with a selector for the node's domain."""
    await stage.start(placed(replicated_job(pods=3)))
    await stage.make_pods()
    leader, *followers = (stage.pods[JOB, index] for index in range(3))
    await eventually(lambda: gates(stage, leader), [])
    for pod in followers:
        assert await gates(stage, pod) == [wire.PLACEMENT_GATE]
    await bind(stage, leader, await node(stage, **{RACK: "r1"}))
    for pod in followers:
        await eventually(lambda: gates(stage, pod), [])  # noqa: B023 - awaited here
        assert (await stage.client.get(PODS, stage.namespace, pod))["spec"]["nodeSelector"] == {RACK: "r1"}


async def test_a_foreign_gate_stays(stage: Stage) -> None:
    """Only our own gate is lifted."""
    job = changed(
        replicated_job(pods=1), "template.spec.template.spec.schedulingGates", [{"name": "example.com/quota"}]
    )
    await stage.start(placed(job))
    await stage.make_pods()
    await eventually(lambda: gates(stage, stage.pods[JOB, 0]), ["example.com/quota"])


async def test_a_node_without_the_label(stage: Stage) -> None:
    """Followers wait for the node's label and the JobSet names it; with the label they are placed."""
    await stage.start(placed())
    await stage.make_pods()
    leader, follower = (stage.pods[JOB, index] for index in range(2))
    await eventually(lambda: gates(stage, leader), [])
    name = await node(stage)
    await bind(stage, leader, name)
    await stage.says_soon("ExclusivePlacementFailed")
    assert await gates(stage, follower) == [wire.PLACEMENT_GATE]
    await stage.client.patch(NODES, None, name, {"metadata": {"labels": {RACK: "r2"}}})
    await stage.edit({"metadata": {"labels": {"looked": "again"}}})
    await eventually(lambda: gates(stage, follower), [])


async def test_a_replaced_leader_leads(stage: Stage) -> None:
    """Followers follow the living leader, not a failed one."""
    await stage.start(placed())
    await stage.make_pods()
    first = stage.pods[JOB, 0]
    await eventually(lambda: gates(stage, first), [])
    await stage.set_phase(first, "Failed")
    second = await stage.make_pod((await stage.jobs())[JOB], 0)
    await eventually(lambda: gates(stage, second), [])
    await bind(stage, second, await node(stage, **{RACK: "r3"}))
    await eventually(lambda: gates(stage, stage.pods[JOB, 1]), [])


async def test_a_leader_that_was_replaced_elsewhere(stage: Stage) -> None:
    """Where the scheduler finds no node for followers in the domain of a leader that failed, their Job is made anew."""
    await stage.start(placed())
    await stage.make_pods()
    first, follower = (stage.pods[JOB, index] for index in range(2))
    await eventually(lambda: gates(stage, first), [])
    await bind(stage, first, await node(stage, **{RACK: "r4"}))
    await eventually(lambda: gates(stage, follower), [])
    before = (await stage.jobs())[JOB]["metadata"]["uid"]
    unschedulable = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    status = {"status": {"conditions": [unschedulable]}}
    await stage.client.patch(PODS, stage.namespace, follower, status, subresource="status")
    await stage.set_phase(first, "Failed")
    second = await stage.make_pod((await stage.jobs())[JOB], 0)
    await eventually(lambda: gates(stage, second), [])
    await bind(stage, second, await node(stage, **{RACK: "r5"}))
    await stage.says_soon("ExclusivePlacementFailed")

    async def is_new() -> bool:
        await stage.collect_garbage()
        return before not in {job["metadata"]["uid"] for job in (await stage.jobs()).values()}

    await eventually(is_new, True)
    await stage.has_jobs(JOB)


async def test_a_priority_below_zero(stage: Stage) -> None:
    """Pods of a negative priority are placed like others: nothing of ours carries the priority in a label."""
    job = changed(replicated_job(), "template.spec.template.spec.priority", -1)
    spec = (await stage.start(placed(job)))[JOB]["spec"]["template"]
    assert spec["spec"]["priority"] == -1
    assert "jobset.sigs.k8s.io/priority" not in spec["metadata"]["labels"]
    assert spec["spec"]["schedulingGates"] == [{"name": wire.PLACEMENT_GATE}]
    assert await stage.warnings() == []
