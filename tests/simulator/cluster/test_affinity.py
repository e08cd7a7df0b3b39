"""A required affinity decides where a Pod may be, as kube-scheduler's filters have it."""

from __future__ import annotations

from typing import Any

import pytest

from inplace.common.kube.resources import KubeObject
from inplace.simulator.cluster.affinity import REQUIRED, has_room_for_kind

RACK = "rack"


def node(name: str = "n1", **labels: str) -> KubeObject:
    """Return a node."""
    return {"metadata": {"name": name, "labels": labels}}


def pod(namespace: str = "default", affinity: Any = None, **labels: str) -> KubeObject:
    """Return a Pod."""
    return {"metadata": {"namespace": namespace, "labels": labels}, "spec": {"affinity": affinity}}


def near(kind: str = "podAffinity", key: str = RACK, **term: Any) -> KubeObject:
    """Return an affinity to Pods with the label job=a, or what the term says."""
    selector = {"labelSelector": {"matchLabels": {"job": "a"}}}
    return {kind: {REQUIRED: [{"topologyKey": key} | selector | term]}}


def on(**requirement: Any) -> KubeObject:
    """Return an affinity to nodes."""
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}}}


APART = near("podAntiAffinity")
OTHER_JOBS: dict[str, Any] = {
    "labelSelector": {"matchExpressions": [{"key": "job", "operator": "NotIn", "values": ["a"]}]},
    "namespaceSelector": {},
}
HERE, THERE = node(rack="r1"), {"rack": "r2"}


@pytest.mark.parametrize(
    ("new", "placed", "fits"),
    [
        (pod(affinity=near(), job="a"), [], True),  # the first of its kind
        (pod(affinity=near(), job="b"), [], False),  # nobody it could be near to
        (pod(affinity=near(), job="b"), [(pod(job="a"), {"rack": "r1"})], True),
        (pod(affinity=near(), job="a"), [(pod(job="a"), THERE)], False),
        (pod("other", affinity=near(), job="b"), [(pod(job="a"), {"rack": "r1"})], False),
        (pod("other", near(namespaces=["default"]), job="b"), [(pod(job="a"), {"rack": "r1"})], True),
        (pod("other", near(namespaceSelector={}), job="b"), [(pod(job="a"), {"rack": "r1"})], True),
        (pod(affinity=near(key="zone"), job="a"), [], False),  # the node has no such label
        (pod(affinity=APART, job="b"), [(pod(job="a"), {"rack": "r1"})], False),
        (pod(affinity=APART, job="b"), [(pod(job="a"), THERE)], True),
        (pod(affinity=near("podAntiAffinity", "zone"), job="b"), [(pod(job="a"), {"rack": "r1"})], True),
        (pod(job="a"), [(pod(affinity=APART, job="b"), {"rack": "r1"})], False),  # the other one minds
        (pod(affinity=near("podAntiAffinity", **OTHER_JOBS), job="a"), [(pod("x", job="b"), {"rack": "r1"})], False),
        (pod(affinity=near("podAntiAffinity", **OTHER_JOBS), job="a"), [(pod(job="a"), {"rack": "r1"})], True),
        (pod(affinity=on(key=RACK, operator="In", values=["r1"])), [], True),
        (pod(affinity=on(key=RACK, operator="NotIn", values=["r1"])), [], False),
        (pod(affinity=on(key=RACK, operator="Exists")), [], True),
        (pod(affinity=on(key="zone", operator="DoesNotExist")), [], True),
        (pod(affinity=on(key=RACK, operator="Gt", values=["3"])), [], False),
        (pod(affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{}]}}}), [], False),
    ],
)
def test_where_a_pod_may_be(new: KubeObject, placed: list[tuple[KubeObject, dict[str, str]]], fits: bool) -> None:
    """Each requirement lets a Pod onto a node of rack r1, or keeps it away."""
    assert bool(has_room_for_kind(new, HERE, placed)) is fits
