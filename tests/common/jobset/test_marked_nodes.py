"""Whether a Pod leaves its node: marks against tolerations, as for the scheduler; pins, devices, other nodes."""

from __future__ import annotations

from typing import Any

import pytest

from inplace.common.jobset.kinds import HOSTNAME, POD_CODEC, Pod
from inplace.common.jobset.marked_nodes import judge, leaves_marked_nodes, read_node, unhealthy_devices
from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from tests.controller.objects import pod_manifest

CORDON = "node.kubernetes.io/unschedulable"
DEFAULTS = [  # what admission adds to each Pod
    {"key": f"node.kubernetes.io/{name}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for name in ("not-ready", "unreachable")
]
LEAVES, STAYS, UNMARKED = "leaves", "stays", "unmarked"


def a_node(name: str = "n1", *, ready: str = "True", cordoned: bool = False, taints: Any = ()) -> KubeObject:
    """Return a node; taints are KEY[=VALUE]:EFFECT."""
    spec: KubeObject = {"unschedulable": True} if cordoned else {}
    for text in taints:
        pair, _, effect = text.partition(":")
        key, _, value = pair.partition("=")
        spec.setdefault("taints", []).append({"key": key, "effect": effect} | ({"value": value} if value else {}))
    conditions = [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": ready}]
    metadata = {"name": name, "labels": {HOSTNAME: f"host-{name}"}}
    return {"metadata": metadata, "spec": spec, "status": {"conditions": conditions}}


def a_pod(*devices: tuple[str, str]) -> Pod:
    """Return a Pod as the cache keeps it; each device has an id and a health."""
    resources = [{"resourceID": name, "health": health} for name, health in devices]
    status: KubeObject = {"name": "worker"}
    if resources:
        status["allocatedResourcesStatus"] = [{"name": "nvidia.com/gpu", "resources": resources}]
    return POD_CODEC.convert(pod_manifest(status={"containerStatuses": [status]}))


def answer(node: KubeObject, *tolerations: KubeObject, pod: Pod | None = None, spec: Any = None) -> str:
    """Return what is answered for a Pod on this node."""
    whole = {"tolerations": [*DEFAULTS, *tolerations]} | (spec or {})
    found = judge(pod or a_pod(), whole, read_node(node))
    return UNMARKED if found is None else LEAVES if found.leaves else STAYS


def exists(key: str, **more: str) -> KubeObject:
    """Return a toleration of a key."""
    return {"key": key, "operator": "Exists", **more}


GPU = "nvidia.com/gpu=present:NoSchedule"


@pytest.mark.parametrize(
    ("node", "tolerations", "expected"),
    [
        (a_node(), (), UNMARKED),
        (a_node(cordoned=True), (), LEAVES),
        (a_node(cordoned=True, taints=[f"{CORDON}:NoSchedule"]), (), LEAVES),
        (a_node(cordoned=True), (exists(CORDON),), UNMARKED),
        (a_node(cordoned=True), (exists(CORDON, effect="NoExecute"),), LEAVES),
        (a_node(cordoned=True), ({"operator": "Exists"},), UNMARKED),
        (a_node(ready="False"), (), LEAVES),
        (a_node(ready="False"), ({"operator": "Exists"},), UNMARKED),
        (a_node(taints=[GPU]), (), LEAVES),
        (a_node(taints=[GPU]), (exists("nvidia.com/gpu"),), UNMARKED),
        (a_node(taints=[GPU]), (exists("nvidia.com/gpu", effect="NoSchedule"),), UNMARKED),
        (a_node(taints=[GPU]), ({"key": "nvidia.com/gpu", "value": "present"},), UNMARKED),
        (a_node(taints=[GPU]), ({"key": "nvidia.com/gpu", "operator": "Equal", "value": "absent"},), LEAVES),
        (a_node(taints=[GPU]), ({"key": "nvidia.com/gpu"},), LEAVES),
        (a_node(taints=["a:NoSchedule"]), ({"key": "a"},), UNMARKED),
        (a_node(taints=["size=8:NoSchedule"]), ({"key": "size", "operator": "Gt", "value": "4"},), UNMARKED),
        (a_node(taints=[GPU, "broken:NoSchedule"]), (exists("nvidia.com/gpu"),), LEAVES),
        (a_node(taints=["a:PreferNoSchedule"]), (), UNMARKED),
        (a_node(taints=["a:NoExecute"]), (), LEAVES),
        (a_node(taints=["a:NoExecute"]), (exists("a", tolerationSeconds="9"),), UNMARKED),
        (a_node(taints=["a:NoExecute"]), (exists("a", effect="NoSchedule"),), LEAVES),
    ],
)
def test_marks_count_as_for_the_scheduler(node: KubeObject, tolerations: Any, expected: str) -> None:
    """A mark that the Pod tolerates is no reason to leave; each other one is."""
    assert answer(node, *tolerations) == expected


@pytest.mark.parametrize(
    "node",
    [
        a_node(ready="Unknown"),
        a_node(ready="Unknown", cordoned=True),
        a_node(taints=["node.kubernetes.io/unreachable:NoSchedule"]),
    ],
)
def test_a_silent_kubelet_is_known(node: KubeObject) -> None:
    """Nobody could end a Pod there."""
    assert read_node(node).is_silent
    assert not read_node(a_node(cordoned=True, ready="False")).is_silent


def affinity(*terms: KubeObject) -> KubeObject:
    """Return a Pod's spec with a required node affinity of these terms."""
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return {"affinity": {"nodeAffinity": required}}


def term(part: str, key: str, operator: str, *values: str) -> KubeObject:
    """Return a term with one requirement."""
    return {part: [{"key": key, "operator": operator, "values": list(values)}]}


HERE = term("matchExpressions", HOSTNAME, "In", "host-n1")
BY_NAME = term("matchFields", "metadata.name", "In", "n1")


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, LEAVES),
        ({"nodeSelector": {HOSTNAME: "host-n1"}}, STAYS),
        ({"nodeSelector": {"rack": "r1"}}, LEAVES),
        (affinity(), LEAVES),
        (affinity(HERE), STAYS),
        (affinity(BY_NAME), STAYS),
        (affinity(HERE, BY_NAME), STAYS),
        (affinity(HERE, term("matchExpressions", "rack", "In", "r1")), LEAVES),
        (affinity(term("matchExpressions", HOSTNAME, "In", "host-n1", "host-n2")), LEAVES),
        (affinity(term("matchExpressions", HOSTNAME, "NotIn", "host-n1")), LEAVES),
        (affinity(term("matchExpressions", HOSTNAME, "Exists")), LEAVES),
        ({"affinity": {"podAffinity": {}}}, LEAVES),
    ],
)
def test_a_pod_that_asks_for_this_node_stays(spec: KubeObject, expected: str) -> None:
    """Its replacement could run nowhere else."""
    assert answer(a_node(cordoned=True), spec=spec) == expected
    assert answer(a_node(), spec=spec) == UNMARKED


def test_an_unhealthy_device_is_a_mark() -> None:
    """Of its devices the cache keeps the unhealthy ones; an unknown health is none."""
    pod = a_pod(("gpu-0", "Healthy"), ("gpu-1", "Unhealthy"), ("gpu-2", "Unknown"))
    assert unhealthy_devices(pod) == ("nvidia.com/gpu gpu-1",)
    assert answer(a_node(), pod=pod) == LEAVES
    assert answer(a_node(), pod=a_pod(("gpu-0", "Healthy"))) == UNMARKED
    assert a_pod(("gpu-0", "Healthy")) == a_pod(), "of devices that are well nothing is kept"
    many = a_pod(*((f"gpu-{number}", "Unhealthy") for number in range(1000)))
    assert len(unhealthy_devices(many)) == 4


@pytest.mark.parametrize(
    ("node", "others", "expected"),
    [
        (a_node(cordoned=True), [a_node("n2")], LEAVES),
        (a_node(cordoned=True), [a_node("n2", cordoned=True)], STAYS),
        (a_node(cordoned=True), [a_node("n2", cordoned=True), a_node("n3", taints=["a:NoSchedule"])], STAYS),
        (a_node(cordoned=True), [a_node("n2", cordoned=True), a_node("n3")], LEAVES),
        (a_node(taints=["a:NoExecute"]), [a_node("n2", cordoned=True)], LEAVES),
        (a_node(ready="False"), [a_node("n2", ready="False")], STAYS),
    ],
)
def test_a_mark_on_all_nodes_says_nothing_of_one(node: KubeObject, others: list[KubeObject], expected: str) -> None:
    """Unless it ends the Pod anyway."""
    found = judge(a_pod(), {"tolerations": DEFAULTS}, read_node(node), [read_node(other) for other in others])
    assert found is not None
    assert found.leaves is (expected == LEAVES)
    bad = judge(a_pod(("gpu-1", "Unhealthy")), {}, read_node(node), [read_node(other) for other in others])
    assert bad is not None
    assert bad.leaves


def test_the_words_name_the_marks() -> None:
    """Each once, as kubectl writes taints, and no longer than an Event can be."""
    node = a_node(cordoned=True, ready="False", taints=[f"{CORDON}:NoSchedule", GPU, "a:NoExecute"])
    found = judge(a_pod(("gpu-1", "Unhealthy")), {}, read_node(node))
    assert found is not None
    assert found.why == (
        "node n1: cordoned, tainted nvidia.com/gpu=present:NoSchedule, tainted a:NoExecute, not ready, device "
        "nvidia.com/gpu gpu-1 is unhealthy"
    )
    many = judge(a_pod(), {}, read_node(a_node(taints=[f"{'k' * 300}{number}:NoSchedule" for number in range(50)])))
    assert many is not None
    assert len(many.why) <= 300


@pytest.mark.parametrize(
    ("text", "expected"), [(None, True), ("marked=leave", True), ("marked=stay", False), ("marked=off", True)]
)
def test_the_annotation(text: str | None, expected: bool) -> None:
    """Pods leave unless it says `stay`."""
    assert leaves_marked_nodes({} if text is None else {wire.NODES: text}) is expected
