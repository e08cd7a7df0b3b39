"""
The taint by which a bad node loses the Pods that Kueue has pinned to it: what stands on the Node, and when it goes.

    spec.taints: inplace.dev/bad-node:NoSchedule
    metadata.labels["inplace.dev/bad-node"]: ""
    metadata.annotations["inplace.dev/bad-node"]: {"namespace": "default", "jobset": "train", "uid": ..., "until": ...}

All that is known of a taint stands on its Node, so the next leader can remove it. NoSchedule: no Pod that runs there is
ended for it, of no group. Pure. docs/adr/0098
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from inplace.controller.spec.bad_nodes import find, records_of
from inplace.controller.spec.causes import unix_time
from inplace.controller.spec.jobset import JobSet
from inplace.controller.spec.kinds import Pod
from inplace.controller.spec.spares import is_placed_by_queue
from inplace.controller.spec.status_record import StatusRecord

TAINTED: Final = "NodeTainted"  # the Event's reason
TAINTED_MAX: Final = 100  # nodes of the whole controller
SECONDS_MIN: Final = 60
SECONDS_MAX: Final = 3600
SET_BACK_S_MAX: Final = 5.0
_FORM: Final = re.compile(r"([0-9]{1,3})/([0-9]{1,4})")
_TAINT: Final = {"key": wire.BAD_NODE, "effect": "NoSchedule"}


@dataclass(frozen=True, slots=True)
class TaintLimits:
    """What bounds the taints of the whole controller.

    Args:
        nodes: so many have one at the same time at most.
        seconds: for so long each.
    """

    nodes: int
    seconds: int


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
        nodes, seconds = map(int, found.groups())
        if 1 <= nodes <= TAINTED_MAX and SECONDS_MIN <= seconds <= SECONDS_MAX:
            return TaintLimits(nodes, seconds)
    raise ValueError(
        f"expected NODES/SECONDS with 1 to {TAINTED_MAX} nodes and {SECONDS_MIN} to {SECONDS_MAX} seconds, such as "
        f"4/600, or 0, saw {text[:40]!r}"
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
    return pod.spec.is_pinned and job is not None and is_placed_by_queue(job)


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
