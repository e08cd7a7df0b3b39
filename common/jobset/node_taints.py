"""
The taint by which a bad node loses the Pods that Kueue has pinned to it: what stands on the Node, and when it goes.

    spec.taints: inplace.dev/bad-node:NoSchedule
    metadata.labels["inplace.dev/bad-node"]: ""
    metadata.annotations["inplace.dev/bad-node"]: {"namespace": "default", "jobset": "train", "uid": ..., "until": ...}

All that is known of a taint stands on its Node, so the next leader can remove it. NoSchedule: no Pod that runs there is
ended for it, of no group.

What a tenant writes decides nothing here: not his failures alone, not a node that his template names, and no annotation
of Kueue's. Pure. docs/adr/0098
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from inplace.common.jobset.bad_nodes import find, records_of
from inplace.common.jobset.causes import unix_time
from inplace.common.jobset.conditions import is_true
from inplace.common.jobset.fields import ReplicatedJob
from inplace.common.jobset.jobset import JobSet
from inplace.common.jobset.kinds import Pod
from inplace.common.jobset.status_record import StatusRecord
from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire

TAINTED: Final = "NodeTainted"  # the Event's reason
TAINTED_MAX: Final = 100  # nodes of the whole controller
SECONDS_MIN: Final = 60
SECONDS_MAX: Final = 3600
SET_BACK_S_MAX: Final = 5.0
_CONTROL_PLANE: Final = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
_FORM: Final = re.compile(r"([0-9]{1,3})/([0-9]{1,4})((?:/[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?)*)")
_QUEUES_TOPOLOGY: Final = (
    "kueue.x-k8s.io/podset-required-topology",
    "kueue.x-k8s.io/podset-preferred-topology",
    "kueue.x-k8s.io/podset-unconstrained-topology",
)
"""Annotations of a Pod template whose Pods Kueue places."""

_TAINT: Final = {"key": wire.BAD_NODE, "effect": "NoSchedule"}


@dataclass(frozen=True, slots=True)
class TaintLimits:
    """What bounds the taints of the whole controller.

    Args:
        nodes: so many have one at the same time at most.
        seconds: for so long each.
        trusted: namespaces whose JobSets' verdict alone is enough.
    """

    nodes: int
    seconds: int
    trusted: frozenset[str] = frozenset()

    @property
    def nodes_of_a_namespace(self) -> int:
        """Return how many of them the failures of one namespace may taint: half, but always one."""
        return max(1, self.nodes // 2)


class NodeTaint(StatusRecord, frozen=True):
    """Whose taint a Node has; the annotation's value as JSON.

    Args:
        until: when it ends, by the controller's clock; RFC 3339.
    """

    namespace: str = ""
    jobset: str = ""
    uid: str = ""
    until: str = ""


def read_limits(text: str) -> TaintLimits | None:
    """Read the controller's --taint-bad-nodes; None for "0".

    Raises:
        ValueError: it is not NODES/SECONDS; the message says what is expected.
    """
    if text == "0":
        return None
    if (found := _FORM.fullmatch(text)) is not None:
        nodes, seconds = int(found[1]), int(found[2])
        if 1 <= nodes <= TAINTED_MAX and SECONDS_MIN <= seconds <= SECONDS_MAX:
            return TaintLimits(nodes, seconds, frozenset(found[3].split("/")[1:]))
    raise ValueError(
        f"expected NODES/SECONDS with 1 to {TAINTED_MAX} nodes and {SECONDS_MIN} to {SECONDS_MAX} seconds, such as "
        f"4/600, then the trusted namespaces, as in 4/600/team-a/team-b, or 0; saw {text[:40]!r}"
    )


def read_taint(node: Mapping[str, Any]) -> NodeTaint | None:
    """Return whose taint a Node has; an empty one if its words cannot be read, None if nothing of ours is there."""
    metadata = node["metadata"]
    text = (metadata.get("annotations") or {}).get(wire.BAD_NODE)
    taints = (node.get("spec") or {}).get("taints") or ()
    if text is None and wire.BAD_NODE not in (metadata.get("labels") or {}) and not any(map(_is_ours, taints)):
        return None
    try:
        return NodeTaint.read(msgspec.json.decode(text or ""))
    except msgspec.DecodeError:
        return NodeTaint()


def tainting(node: Mapping[str, Any], taint: NodeTaint) -> KubeObject:
    """Return the patch that gives this version of a Node the taint; the taints of others stay."""
    return _change(node, [*_others(node), _TAINT], label="", words=json.dumps(taint.fields()))


def untainting(node: Mapping[str, Any]) -> KubeObject:
    """Return the patch that takes all that is ours from this version of a Node."""
    return _change(node, _others(node) or None, label=None, words=None)


def is_moved_by_queue(jobset: JobSet, pod: Pod) -> bool:
    """Say whether the queue that chose a Pod's node chooses one anew for its replacement, if the node is tainted."""
    labels = pod.metadata.labels
    job = jobset.find_replicated_job((labels and labels.replicated_job) or "")
    return pod.spec.is_pinned and job is not None and _is_placed_by_queue(job) and not job.form.names_a_node


def _is_placed_by_queue(job: ReplicatedJob) -> bool:
    """Say whether a queue chooses the nodes of a replicatedJob's Pods."""
    pod_template = (job.template().get("spec") or {}).get("template") or {}
    annotations = (pod_template.get("metadata") or {}).get("annotations") or {}
    return any(name in annotations for name in _QUEUES_TOPOLOGY)


def has_assigned_hosts(workload: Mapping[str, Any], job: str) -> bool:
    """Say whether Kueue admitted a Workload, and chose hosts for the Pods of a replicatedJob.

    Its status is Kueue's: a user may create a Workload, and never write that.
    """
    status = workload.get("status") or {}
    assignments = (status.get("admission") or {}).get("podSetAssignments") or ()
    is_placed = any(one.get("name") == job and one.get("topologyAssignment") for one in assignments)
    return is_placed and is_true(status.get("conditions") or (), "Admitted")


def is_of_control_plane(node: Mapping[str, Any]) -> bool:
    """Say whether a Node is one of the control plane, by its label or its taint."""
    taints = (node.get("spec") or {}).get("taints") or ()
    names = {*(node["metadata"].get("labels") or ()), *(taint.get("key") for taint in taints)}
    return not names.isdisjoint(_CONTROL_PLANE)


def is_bad_elsewhere(node: str, namespace: str, jobsets: Iterable[JobSet], now: str) -> bool:
    """Say whether a JobSet of another namespace, whose templates name no node, finds a node bad."""

    def is_against(jobset: JobSet) -> bool:
        if jobset.bad_nodes is None or jobset.namespace == namespace:
            return False
        entries = jobset.status.get(wire.NODE_FAILURES) or ()
        found = [entry for entry in entries if isinstance(entry, Mapping) and entry.get("node") == node]
        is_bad = bool(found) and find(records_of({wire.NODE_FAILURES: found}, jobset.bad_nodes, now), node).is_bad
        return is_bad and not any(job.form.names_a_node for job in jobset.replicated_jobs)

    return any(map(is_against, jobsets))


def is_wanted(limits: TaintLimits | None, node: str, taint: NodeTaint, jobset: JobSet | None, now: str) -> bool:
    """Say whether a taint may stay: its JobSet still finds the node bad, and its time is not over.

    It stays while the JobSet is suspended: a queue that found no other host takes the admission back, and is to choose
    others for the next.

    An end that is further away than any that is written now is no end: a clock jumped back, or the limit is lower. A
    clock that is set back by `SET_BACK_S_MAX` ends nothing.

    Args:
        limits: None ends all taints.
        node: that has the taint.
        taint: as it stands there.
        jobset: with the namespace and name of the taint's; None if there is none.
        now: RFC 3339.
    """
    until_s, now_s = unix_time(taint.until), unix_time(now)
    if limits is None or jobset is None or until_s is None or now_s is None:
        return False
    is_over = jobset.uid != taint.uid or jobset.is_finished or jobset.is_leaving
    if is_over or jobset.bad_nodes is None or not 0 < until_s - now_s <= limits.seconds + SET_BACK_S_MAX:
        return False
    return find(records_of(jobset.status, jobset.bad_nodes, now), node).is_bad


def _change(
    node: Mapping[str, Any], taints: list[KubeObject] | None, *, label: str | None, words: str | None
) -> KubeObject:
    return {
        "metadata": {
            "resourceVersion": node["metadata"]["resourceVersion"],
            "labels": {wire.BAD_NODE: label},
            "annotations": {wire.BAD_NODE: words},
        },
        "spec": {"taints": taints},
    }


def _others(node: Mapping[str, Any]) -> list[KubeObject]:
    return [one for one in (node.get("spec") or {}).get("taints") or () if not _is_ours(one)]


def _is_ours(taint: Mapping[str, Any]) -> bool:
    return taint.get("key") == wire.BAD_NODE
