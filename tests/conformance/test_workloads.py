"""Pods and Jobs: defaults, the rules of restarts, what may change."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from inplace.common.kube.errors import Conflict, Forbidden, Invalid, NotFound
from inplace.common.kube.resources import JOBS, PODS, KubeObject, Resource
from tests.conformance.api import NEWEST_ONLY, Api, refusal
from tests.conformance.widgets import job, pod

pytestmark = pytest.mark.asyncio

GATE = [{"name": "example.com/gate"}]  # keeps the real scheduler away
CLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False)
RULE = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [88]}}


def _container(name: str = "c", **more: Any) -> dict[str, Any]:
    return {"name": name, "image": "i:1", **more}


def _pod(*containers: dict[str, Any], **spec: Any) -> KubeObject:
    return pod(**{"containers": list(containers) or [_container()], "schedulingGates": GATE, **spec})


async def _causes(api: Api, obj: KubeObject) -> list[str]:
    refused = await refusal(api.create(obj, PODS if obj["kind"] == "Pod" else JOBS), Invalid)
    return [cause["field"] for cause in refused.status["details"]["causes"]]


async def test_pod_defaults(api: Api) -> None:
    """A new Pod is Pending and has the defaults that kubelets and agents rely on."""
    probe = {"httpGet": {"port": 8080}}
    created = await api.create(_pod(_container(startupProbe=probe, ports=[{"containerPort": 1}])), PODS)
    spec = created["spec"]
    assert created["status"]["phase"] == "Pending"
    assert created["metadata"]["generation"] == 1
    assert (spec["restartPolicy"], spec["terminationGracePeriodSeconds"]) == ("Always", 30)
    assert (spec["dnsPolicy"], spec["schedulerName"]) == ("ClusterFirst", "default-scheduler")
    container = spec["containers"][0]
    assert container["imagePullPolicy"] == "IfNotPresent"
    assert container["ports"] == [{"containerPort": 1, "protocol": "TCP"}]
    assert container["startupProbe"] == {
        "httpGet": {"port": 8080, "path": "/", "scheme": "HTTP"},
        "timeoutSeconds": 1,
        "periodSeconds": 10,
        "successThreshold": 1,
        "failureThreshold": 3,
    }


async def test_pod_tolerates_a_lost_node_for_five_minutes(api: Api) -> None:
    """Every Pod gets the two default tolerations of 300 s."""
    created = await api.create(_pod(), PODS)
    seconds = {t["key"]: t["tolerationSeconds"] for t in created["spec"]["tolerations"]}
    assert seconds == {"node.kubernetes.io/not-ready": 300, "node.kubernetes.io/unreachable": 300}


async def test_restart_rules_are_kept(api: Api) -> None:
    """The restartPolicyRules with RestartAllContainers survive on regular containers and on sidecars."""
    worker = _container(restartPolicy="Never", restartPolicyRules=[RULE])
    sidecar = _container(
        "agent", restartPolicy="Always", restartPolicyRules=[RULE], startupProbe={"exec": {"command": ["x"]}}
    )
    created = await api.create(_pod(worker, initContainers=[sidecar], restartPolicy="Never"), PODS)
    assert created["spec"]["containers"][0]["restartPolicyRules"] == [RULE]
    assert created["spec"]["initContainers"][0]["restartPolicyRules"] == [RULE]


async def test_restart_rules_need_a_restart_policy(api: Api) -> None:
    """A container with rules and no restartPolicy of its own is a 422."""
    fields = await _causes(api, _pod(_container(restartPolicyRules=[RULE])))
    assert any(field.startswith("spec.containers[0].restartPolicy") for field in fields)


async def test_restart_rules_are_at_most_twenty(api: Api) -> None:
    """Twenty rules are fine, 21 are a 422."""
    await api.create(_pod(_container(restartPolicy="Never", restartPolicyRules=[RULE] * 20)), PODS)
    fields = await _causes(api, _pod(_container(restartPolicy="Never", restartPolicyRules=[RULE] * 21)))
    assert fields == ["spec.containers[0].restartPolicyRules"]


@pytest.mark.parametrize(
    "rule",
    [
        RULE | {"action": "Explode"},
        {"action": "RestartAllContainers"},
        RULE | {"exitCodes": {"operator": "Is", "values": [1]}},
        RULE | {"exitCodes": {"operator": "In", "values": list(range(256))}},
    ],
    ids=["action", "no exit codes", "operator", "256 values"],
)
async def test_malformed_restart_rules(api: Api, rule: dict[str, Any]) -> None:
    """An unknown action or operator, missing exit codes or more than 255 of them are 422s on the rule."""
    fields = await _causes(api, _pod(_container(restartPolicy="Never", restartPolicyRules=[rule])))
    assert fields
    assert all(field.startswith("spec.containers[0].restartPolicyRules") for field in fields)


async def test_pod_without_containers_is_invalid(api: Api) -> None:
    """A Pod needs a container, a container a name and an image, and names are unique."""
    assert await _causes(api, _pod() | {"spec": {"containers": []}}) == ["spec.containers"]
    assert "spec.containers[0].image" in await _causes(api, _pod({"name": "c"}))
    assert "spec.containers[1].name" in await _causes(api, _pod(_container(), _container()))


async def test_pod_spec_is_immutable(api: Api) -> None:
    """Commands, env and restart rules of a Pod cannot change; its image can."""
    await api.create(_pod(), PODS)
    for change in ({"command": ["x"]}, {"env": [{"name": "A", "value": "b"}]}):
        patch, kind = {"spec": {"containers": [_container(**change)]}}, "application/strategic-merge-patch+json"
        patching = api.patch(patch, "p", PODS, kind=kind)
        await refusal(patching, Invalid, "pod updates may not change fields other than")
    patched = await api.patch(
        [{"op": "replace", "path": "/spec/containers/0/image", "value": "i:2"}],
        "p",
        PODS,
        kind="application/json-patch+json",
    )
    assert patched["spec"]["containers"][0]["image"] == "i:2"


async def test_scheduling_gates_only_go(api: Api) -> None:
    """Gates of a Pod can be removed, not added; while gated its node selector may be narrowed."""
    await api.create(_pod(), PODS)
    merge = "application/merge-patch+json"
    more = {"spec": {"schedulingGates": [*GATE, {"name": "example.com/more"}]}}
    await refusal(api.patch(more, "p", PODS, kind=merge), Invalid)
    patched = await api.patch({"spec": {"nodeSelector": {"rack": "r1"}}}, "p", PODS, kind=merge)
    assert patched["spec"]["nodeSelector"] == {"rack": "r1"}
    patched = await api.patch({"spec": {"schedulingGates": None}}, "p", PODS, kind=merge)
    assert not patched["spec"].get("schedulingGates")
    await refusal(api.patch({"spec": {"nodeSelector": {"rack": "r2"}}}, "p", PODS, kind=merge), Invalid)


async def test_binding_puts_a_pod_on_a_node_once(api: Api) -> None:
    """POST of a Binding sets nodeName and PodScheduled; a second one is a 409."""
    await api.create(_pod(schedulingGates=None, schedulerName="nobody"), PODS)
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
    }
    assert (await api.send("POST", api.path(PODS, "p", "binding"), binding)).status == 201
    bound = await api.get("p", PODS)
    assert bound["spec"]["nodeName"] == "n1"
    held = {c["type"]: c["status"] for c in bound["status"]["conditions"]}
    assert held["PodScheduled"] == "True"
    assert (await api.send("POST", api.path(PODS, "p", "binding"), binding)).status == 409
    await api.client.delete(PODS, api.ns, "p", grace_period_s=0)


async def test_pod_status_is_a_subresource(api: Api) -> None:
    """A Pod's status changes through pods/status only, and spec does not change there."""
    await api.create(_pod(), PODS)
    patched = await api.patch({"status": {"phase": "Running"}}, "p", PODS)
    assert patched["status"]["phase"] == "Pending"
    patched = await api.patch(
        {"status": {"phase": "Running"}, "spec": {"nodeSelector": {"a": "b"}}}, "p", PODS, subresource="status"
    )
    assert patched["status"]["phase"] == "Running"
    assert "nodeSelector" not in patched["spec"]


async def test_job_defaults_and_generated_selector(api: Api) -> None:
    """A new Job has the defaults, the selector and the labels from which the Job controller works."""
    created = await api.create(job(), JOBS)
    spec, uid = created["spec"], created["metadata"]["uid"]
    assert (spec["parallelism"], spec["completions"], spec["backoffLimit"]) == (1, 1, 6)
    assert (spec["completionMode"], spec["podReplacementPolicy"]) == ("NonIndexed", "TerminatingOrFailed")
    assert spec["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    assert spec["template"]["metadata"]["labels"] == {
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": "j",
        "controller-uid": uid,
        "job-name": "j",
    }
    assert spec["template"]["spec"]["terminationGracePeriodSeconds"] == 30


async def test_job_with_parallelism_alone_has_no_completions(api: Api) -> None:
    """A parallelism without completions stays a work queue; backoffLimitPerIndex lifts the default backoffLimit."""
    created = await api.create(job(parallelism=3), JOBS)
    assert "completions" not in created["spec"]
    indexed = job("k", completionMode="Indexed", completions=2, parallelism=2, backoffLimitPerIndex=1)
    assert (await api.create(indexed, JOBS))["spec"]["backoffLimit"] == 2147483647


async def test_job_template_must_not_restart_always(api: Api) -> None:
    """A Job's Pods are Never or OnFailure."""
    always = job()
    always["spec"]["template"]["spec"]["restartPolicy"] = "Always"
    assert await _causes(api, always) == ["spec.template.spec.restartPolicy"]


async def test_indexed_job_needs_completions(api: Api) -> None:
    """A completionMode of Indexed without completions is a 422."""
    assert "spec.completions" in await _causes(api, job(completionMode="Indexed", parallelism=2))


async def test_job_counts_are_not_negative(api: Api) -> None:
    """Negative parallelism is a 422."""
    assert "spec.parallelism" in await _causes(api, job(parallelism=-1))


RULES_REFUSED: list[tuple[KubeObject, str]] = [  # a rule of a podFailurePolicy, and the field that is refused
    ({"onExitCodes": {"containerName": "no", "operator": "In", "values": [3]}}, ".onExitCodes.containerName"),
    ({"onExitCodes": {"operator": "In", "values": [0, 3]}}, ".onExitCodes.values[0]"),
    ({"onExitCodes": {"operator": "NotIn", "values": [4, 3]}}, ".onExitCodes.values"),
    ({"onExitCodes": {"operator": "NotIn", "values": []}}, ".onExitCodes.values"),
    ({"onExitCodes": {"operator": "Near", "values": [3]}}, ".onExitCodes.operator"),
    ({"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [3]}}, ".action"),
    ({"action": "Retry", "onExitCodes": {"operator": "In", "values": [3]}}, ".action"),
    ({}, ""),
]


@pytest.mark.parametrize(("rule", "field"), RULES_REFUSED, ids=range(len(RULES_REFUSED)))
async def test_a_rule_of_a_pod_failure_policy(api: Api, rule: KubeObject, field: str) -> None:
    """A rule names a container of its template, exit codes in order without 0 for In, and an action that there is."""
    policy = {"rules": [{"action": "FailJob"} | rule]}
    assert await _causes(api, job(podFailurePolicy=policy)) == [f"spec.podFailurePolicy.rules[0]{field}"]


async def test_a_pod_failure_policy_that_is_taken(api: Api) -> None:
    """NotIn may list 0; a rule about Pod conditions has no exit codes; the Pods are replaced when they have failed."""
    condition = {"type": "DisruptionTarget", "status": "True"}
    rules = [
        {"action": "Ignore", "onPodConditions": [condition]},
        {"action": "FailJob", "onExitCodes": {"containerName": "c", "operator": "NotIn", "values": [0, 42]}},
    ]
    taken = job(podFailurePolicy={"rules": rules})
    refused = taken | {"spec": taken["spec"] | {"podReplacementPolicy": "TerminatingOrFailed"}}
    assert await _causes(api, refused) == ["spec.podReplacementPolicy"]
    assert (await api.create(taken, JOBS))["spec"]["podReplacementPolicy"] == "Failed"


async def test_job_completions_are_immutable(api: Api) -> None:
    """The completions of a non-indexed Job never change; parallelism may."""
    await api.create(job(parallelism=2, completions=2), JOBS)
    await refusal(api.patch({"spec": {"completions": 3}}, "j", JOBS), Invalid, "field is immutable")
    assert (await api.patch({"spec": {"parallelism": 1}}, "j", JOBS))["spec"]["parallelism"] == 1


async def test_elastic_indexed_job_resizes_in_tandem(api: Api) -> None:
    """The completions of an Indexed Job change together with, and equal to, parallelism."""
    await api.create(job(completionMode="Indexed", parallelism=2, completions=2), JOBS)
    patched = await api.patch({"spec": {"completions": 4, "parallelism": 4}}, "j", JOBS)
    assert (patched["spec"]["completions"], patched["metadata"]["generation"]) == (4, 2)
    await refusal(api.patch({"spec": {"completions": 5}}, "j", JOBS), Invalid)
    await refusal(api.patch({"spec": {"completions": 5, "parallelism": 3}}, "j", JOBS), Invalid)


@NEWEST_ONLY
async def test_indexed_job_does_not_grow_past_its_pods_names(api: Api) -> None:
    """An Indexed Job whose last Pod would have a hostname of 64 characters does not grow, as it could not be made."""
    name = "j" * 61
    await api.create(job(name, completionMode="Indexed", parallelism=10, completions=10), JOBS)
    growth = {"spec": {"completions": 11, "parallelism": 11}}
    refused = await refusal(
        api.patch(growth, name, JOBS), Invalid, "will not able to create pod with invalid DNS label"
    )
    assert [cause["field"] for cause in refused.status["details"]["causes"]] == ["metadata.name"]


@pytest.mark.parametrize(
    "change",
    [
        {"completionMode": "Indexed"},
        {"selector": {"matchLabels": {"a": "b"}}},
        {"managedBy": "example.com/other"},
        {"template": {"spec": {"containers": [{"name": "c", "image": "i:2"}]}}},
    ],
    ids=lambda change: next(iter(change)),
)
async def test_job_immutable_fields(api: Api, change: dict[str, Any]) -> None:
    """The completionMode, selector, managedBy and the template of a Job cannot change."""
    await api.create(job(completions=1), JOBS)
    await refusal(api.patch({"spec": change}, "j", JOBS), Invalid, "field is immutable")


async def test_suspended_job_may_be_rescheduled(api: Api) -> None:
    """While suspended and not yet started, node selectors, labels and annotations of the template may change."""
    await api.create(job(), JOBS)
    change = {
        "metadata": {"labels": {"queue": "q"}, "annotations": {"a": "b"}},
        "spec": {"nodeSelector": {"rack": "r1"}},
    }
    template = (await api.patch({"spec": {"template": change}}, "j", JOBS))["spec"]["template"]
    assert template["spec"]["nodeSelector"] == {"rack": "r1"}
    assert template["metadata"]["labels"]["queue"] == "q"


async def test_suspended_job_may_be_resized(api: Api) -> None:
    """While suspended and at rest, the resources of containers may change, by place and name."""
    first, second = _container("a"), _container("b", resources={"requests": {"cpu": "1"}})
    template = {"spec": {"restartPolicy": "Never", "containers": [first, second]}}
    stored = await api.create(job(template=template), JOBS)
    containers = stored["spec"]["template"]["spec"]["containers"]

    async def change(*wanted: KubeObject) -> list[KubeObject]:
        patch = {"spec": {"template": {"spec": {"containers": list(wanted)}}}}
        found: list[KubeObject] = (await api.patch(patch, "j", JOBS))["spec"]["template"]["spec"]["containers"]
        return found

    resources = {"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"cpu": "2"}}
    found = await change(
        containers[0] | {"resources": {"limits": {"cpu": "1"}}}, containers[1] | {"resources": resources}
    )
    assert [each["resources"] for each in found] == [{"limits": {"cpu": "1"}}, resources]
    for wanted in (
        [found[0], found[1] | {"image": "other:1"}],
        [found[0], found[1] | {"name": "c"}],
        [found[1], found[0]],
        [found[0]],
        [*found, found[0] | {"name": "c"}],
    ):
        await refusal(change(*wanted), Invalid)


@pytest.mark.parametrize("status", [{"startTime": "2026-01-01T00:00:00Z"}, {"active": 1}])
async def test_job_that_is_not_at_rest_is_not_resized(api: Api, status: KubeObject) -> None:
    """A suspended Job that was started, or has active Pods, and is not marked Suspended keeps its resources."""
    stored = await api.create(job(managedBy="example.com/other"), JOBS)  # the real Job controller leaves it alone
    await api.patch({"status": status}, "j", JOBS, subresource="status")
    (container,) = stored["spec"]["template"]["spec"]["containers"]
    resized = container | {"resources": {"limits": {"cpu": "1"}}}
    await refusal(api.patch({"spec": {"template": {"spec": {"containers": [resized]}}}}, "j", JOBS), Invalid)


async def test_job_status_is_a_subresource(api: Api) -> None:
    """A Job's spec does not change through jobs/status, nor its status through the Job."""
    await api.create(job(), JOBS)
    patched = await api.patch({"spec": {"parallelism": 7}}, "j", JOBS, subresource="status")
    assert patched["spec"]["parallelism"] == 1
    patched = await api.patch({"status": {"active": 7}}, "j", JOBS)
    assert patched["status"].get("active", 0) == 0


async def test_eviction_deletes_a_pod(api: Api) -> None:
    """POST of an Eviction deletes the Pod like DELETE does."""
    await api.create(_pod(), PODS)
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    assert (await api.send("POST", api.path(PODS, "p", "eviction"), eviction)).status == 201
    await api.gone("p", PODS)


async def test_an_eviction_marks_its_pod(api: Api) -> None:
    """A Pod that is evicted has the condition DisruptionTarget BEFORE it goes; one that is deleted has not."""
    for name in ("evicted", "deleted"):
        pod = _pod()
        await api.create(pod | {"metadata": pod["metadata"] | {"name": name, "finalizers": ["example.com/held"]}}, PODS)
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "evicted"}}
    assert (await api.send("POST", api.path(PODS, "evicted", "eviction"), eviction)).status == 201
    assert (await api.send("DELETE", api.path(PODS, "deleted"), None)).status == 200
    found = {}
    for name in ("evicted", "deleted"):
        pod = await api.get(name, PODS)
        assert pod["metadata"]["deletionTimestamp"]
        conditions = (one for one in pod["status"].get("conditions") or () if one["type"] == "DisruptionTarget")
        found[name] = [(one["status"], one["reason"], one["message"]) for one in conditions]
        await api.patch({"metadata": {"finalizers": None}}, name, PODS)
    assert found == {"evicted": [("True", "EvictionByEvictionAPI", "Eviction API: evicting")], "deleted": []}


async def test_binding_of_a_gated_pod_is_refused(api: Api) -> None:
    """A Pod with scheduling gates cannot be bound: 409."""
    await api.create(_pod(), PODS)
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p"},
        "target": {"kind": "Node", "name": "n"},
    }
    await refusal(api.client.raw("POST", api.path(PODS, "p", "binding"), body=binding), Conflict)


async def test_a_pod_has_the_priority_of_its_class(api: Api) -> None:
    """And the class's word on preemption; a class that does not exist is refused, with the words that we show."""
    body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "low"}, "value": -10}
    words = 'pods "p" is forbidden: no PriorityClass with name low was found'
    await refusal(api.create(_pod(priorityClassName="low"), PODS), Forbidden, words)
    await api.client.create(CLASSES, None, body | {"preemptionPolicy": "Never"})
    try:
        created: KubeObject = {}
        for _ in range(100):  # the real server's admission learns of a new class by a watch
            try:
                created = await api.create(_pod(priorityClassName="low"), PODS)
                break
            except Forbidden:
                await asyncio.sleep(0.1)
        assert (created["spec"]["priority"], created["spec"]["preemptionPolicy"]) == (-10, "Never")
        assert (await api.create(_pod() | {"metadata": {"name": "q"}}, PODS))["spec"]["priority"] == 0
    finally:
        with suppress(NotFound):
            await api.client.delete(CLASSES, None, "low")
