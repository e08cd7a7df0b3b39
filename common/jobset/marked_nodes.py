"""
Whether a Pod leaves its node because somebody marked that: a cordon, a taint, a node that is not ready, a bad device.

    metadata.annotations["inplace.dev/nodes"]: "marked=leave" (the default) or "marked=stay"

A mark counts as it does for the scheduler: only if the Pod does not tolerate it. Kubernetes, a person or any program
may set it; the verdicts of this controller are `common.jobset.bad_nodes`'. Pure. docs/adr/0092
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final

from inplace.common.bare.record import record
from inplace.common.jobset.kinds import HOSTNAME, Pod
from inplace.common.jobset.settings import LEAVE, NODES

STAYS: Final = "PodStaysOnNode"  # the Event's reason; that of a Pod that leaves is `common.jobset.escalation`'s
UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"
NOT_READY: Final = "node.kubernetes.io/not-ready"
UNREACHABLE: Final = "node.kubernetes.io/unreachable"
WHY_CHARACTERS_MAX: Final = 300
_KEEPS_AWAY: Final = ("NoSchedule", "NoExecute")
_WORDS: Final = {UNSCHEDULABLE: "cordoned", NOT_READY: "not ready"}

Toleration = Mapping[str, Any]


@record
class Taint:
    """One taint that keeps Pods away."""

    key: str
    effect: str
    value: str = ""

    def __str__(self) -> str:
        """Say it for a person, as kubectl does."""
        return _WORDS.get(self.key) or f"tainted {self.key}{self.value and '='}{self.value}:{self.effect}"


CORDONED: Final = Taint(UNSCHEDULABLE, "NoSchedule")


@record
class NodeMarks:
    """The marks of one node.

    Args:
        hostname: its label, by which Pods ask for one node.
        taints: that keep Pods away; a cordon, and a kubelet that says "not ready", are the taints that they lead to.
        is_silent: Kubernetes does not hear of its kubelet, so nobody could end a Pod there.
    """

    node: str
    hostname: str = ""
    taints: tuple[Taint, ...] = ()
    is_silent: bool = False

    def against(self, tolerations: Iterable[Toleration]) -> tuple[Taint, ...]:
        """Return the taints that none of these tolerations matches."""
        known = tuple(tolerations)
        return tuple(taint for taint in self.taints if not any(_tolerates(one, taint) for one in known))


@record
class MarkedPod:
    """A Pod on a marked node.

    Args:
        leaves: it is to be replaced; else it restarts in place, and `why` says why.
        why: the marks and what follows, for a person.
    """

    pod: Pod
    leaves: bool
    why: str


def leaves_marked_nodes(annotations: Mapping[str, Any]) -> bool:
    """Say whether Pods leave marked nodes."""
    return bool(NODES.read_or_default(annotations).get("marked", LEAVE) == LEAVE)


def read_node(node: Mapping[str, Any]) -> NodeMarks:
    """Read the marks of a node."""
    spec, metadata = node.get("spec") or {}, node["metadata"]
    found = [Taint(one["key"], one["effect"], one.get("value") or "") for one in spec.get("taints") or ()]
    taints = dict.fromkeys(taint for taint in found if taint.effect in _KEEPS_AWAY)
    conditions = (node.get("status") or {}).get("conditions") or ()
    ready = next((one.get("status") for one in conditions if one.get("type") == "Ready"), None)
    if spec.get("unschedulable"):
        taints[CORDONED] = None
    if ready == "False":
        taints[Taint(NOT_READY, "NoSchedule")] = None
    is_silent = ready == "Unknown" or any(taint.key == UNREACHABLE for taint in taints)
    hostname = (metadata.get("labels") or {}).get(HOSTNAME) or ""
    return NodeMarks(str(metadata["name"]), str(hostname), tuple(taints), is_silent)


def judge(
    pod: Pod, spec: Mapping[str, Any], marks: NodeMarks, others: Sequence[NodeMarks] = (), *, is_moved: bool = False
) -> MarkedPod | None:
    """Say whether a Pod leaves its node; None if nothing that it minds marks the node.

    It stays where it asks for this very node, because its replacement could run nowhere else, and where the nodes of
    other Pods of its group are marked too: that says nothing of this node, and another one is hardly to be had. A taint
    NoExecute ends the Pod anyway, and an unhealthy device fails it again.

    Args:
        pod: on the node.
        spec: the Pod's, as stored.
        marks: of the node.
        others: some nodes of the group's other Pods.
        is_moved: the queue that pinned the Pod to the node chooses another one, if the node has a taint.
    """
    tolerations = spec.get("tolerations") or ()
    taints, devices = marks.against(tolerations), unhealthy_devices(pod)
    words = list(dict.fromkeys(chain(map(str, taints), (f"device {device} is unhealthy" for device in devices))))
    if not words:
        return None
    what = f"node {marks.node}: {', '.join(words)}"[:WHY_CHARACTERS_MAX]
    if _asks_for(spec, marks) and not (is_moved and taints):
        return MarkedPod(
            pod,
            leaves=False,
            why=f"{what}; pod {pod.metadata.name} restarts there, because it asks for this very node: remove the mark, "
            "or let who chose the node choose another, and then delete the pod",
        )
    must_go = bool(devices) or any(taint.effect == "NoExecute" for taint in taints)
    if others and not must_go and all(other.against(tolerations) for other in others):
        nodes = " and ".join(other.node for other in others)
        return MarkedPod(
            pod,
            leaves=False,
            why=f"{what}; pod {pod.metadata.name} restarts there, because {nodes} of its group are marked as well: "
            "delete the pod if it shall leave",
        )
    return MarkedPod(pod, leaves=True, why=what)


def unhealthy_devices(pod: Pod) -> tuple[str, ...]:
    """Return the devices of a Pod that its kubelet calls unhealthy, in words. Source: KEP-4680."""
    return tuple(
        f"{resource.name} {device.resource_id}"
        for status in pod.status.container_statuses or ()
        for resource in status.allocated_resources_status or ()
        for device in resource.resources or ()
    )


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Say whether a toleration matches a taint; one with an operator that is unknown here does. Source: core/v1."""
    if (toleration.get("effect") or taint.effect) != taint.effect or (toleration.get("key") or taint.key) != taint.key:
        return False
    is_equal = (toleration.get("operator") or "Equal") == "Equal"
    return not is_equal or (bool(toleration.get("key")) and (toleration.get("value") or "") == taint.value)


def _asks_for(spec: Mapping[str, Any], marks: NodeMarks) -> bool:
    """Say whether a Pod may run on this node only: by its nodeSelector, or by each term of its node affinity."""
    if HOSTNAME in (spec.get("nodeSelector") or {}):
        return True
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    ) or {}
    terms = required.get("nodeSelectorTerms") or ()
    return bool(terms) and all(_names(term, marks) for term in terms)


def _names(term: Mapping[str, Any], marks: NodeMarks) -> bool:
    """Say whether a term of a node affinity matches this node alone."""
    names = {("matchExpressions", HOSTNAME): marks.hostname, ("matchFields", "metadata.name"): marks.node}
    return any(
        one.get("operator") == "In" and one.get("values") == [names.get((part, one.get("key")))]
        for part in ("matchExpressions", "matchFields")
        for one in term.get(part) or ()
    )
