"""
Lose a node: its containers stop at once, and a while later the control plane gives up its Pods.

This stands for the node lifecycle controller, taint eviction and Pod garbage collection together. Their result: the
node is not ready and its Pods are Failed; then a Job may replace them.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from inplace.common.kube.client import STRATEGIC_MERGE_PATCH, KubeClient
from inplace.common.kube.clock import Clock
from inplace.common.kube.errors import Conflict, NotFound
from inplace.common.kube.resources import NODES, PODS, KubeObject
from inplace.simulator.apiserver.metadata import timestamp

UNREACHABLE = {"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}
EVICTING = UNREACHABLE | {"effect": "NoExecute"}
TOLERATED_S = 300.0  # admission's DefaultTolerationSeconds


async def give_up(client: KubeClient, clock: Clock, node: str, after_s: float) -> None:
    """Taint a dead node, wait `after_s` seconds, then fail its Pods."""
    await client.patch(NODES, None, node, {"spec": {"taints": [UNREACHABLE]}})
    await clock.sleep(after_s)
    now = timestamp(clock.wall_s())
    unknown = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "lastTransitionTime": now}
    conditions = {"status": {"conditions": [unknown]}}
    await client.patch(NODES, None, node, conditions, kind=STRATEGIC_MERGE_PATCH, subresource="status")
    pods = await client.list(PODS, query={"fieldSelector": f"spec.nodeName={node}"})
    for pod in pods["items"]:
        await _give_up_pod(client, pod, node, now)


async def evict(client: KubeClient, clock: Clock, node: str) -> None:
    """Taint a node that Kubernetes does not hear of, and delete its Pods when they tolerate it no longer.

    Their objects stay: only their kubelet can say that they have ended.
    """
    await client.patch(NODES, None, node, {"spec": {"taints": [UNREACHABLE, EVICTING]}})
    pods = await client.list(PODS, query={"fieldSelector": f"spec.nodeName={node}"})
    waited_s = 0.0
    for pod in sorted(pods["items"], key=_tolerated_s):
        await clock.sleep(_tolerated_s(pod) - waited_s)
        waited_s = _tolerated_s(pod)
        meta = pod["metadata"]
        now = timestamp(clock.wall_s())
        not_ready = {"type": "Ready", "status": "False", "lastTransitionTime": now}
        words = {"metadata": {"uid": meta["uid"]}, "status": {"conditions": [not_ready, _target(now)]}}
        with suppress(NotFound, Conflict):
            await client.patch(
                PODS, meta["namespace"], meta["name"], words, kind=STRATEGIC_MERGE_PATCH, subresource="status"
            )
            await client.delete(PODS, meta["namespace"], meta["name"])


def _tolerated_s(pod: KubeObject) -> float:
    """Return how long a Pod tolerates an unreachable node: of several tolerations, the shortest counts."""
    found = [
        each.get("tolerationSeconds")
        for each in pod["spec"].get("tolerations") or ()
        if each.get("key") in (None, EVICTING["key"]) and each.get("effect") in (None, EVICTING["effect"])
    ]
    return min((float(seconds) for seconds in found if seconds is not None), default=TOLERATED_S)


async def _give_up_pod(client: KubeClient, pod: KubeObject, node: str, now: str) -> None:
    meta = pod["metadata"]
    try:
        if pod.get("status", {}).get("phase") not in ("Succeeded", "Failed"):
            failed = {"metadata": {"uid": meta["uid"]}, "status": _failed(meta["name"], node, now)}
            pod = await client.patch(
                PODS, meta["namespace"], meta["name"], failed, kind=STRATEGIC_MERGE_PATCH, subresource="status"
            )
        if "deletionTimestamp" in pod["metadata"]:  # no kubelet will end this Pod; Pod garbage collection does
            await client.delete(PODS, meta["namespace"], meta["name"], uid=meta["uid"], grace_period_s=0)
    except NotFound:
        return


def _target(now: str) -> dict[str, Any]:
    return {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "DeletionByTaintManager",
        "message": "Taint manager: deleting due to NoExecute taint",
        "lastTransitionTime": now,
    }


def _failed(pod: str, node: str, now: str) -> dict[str, Any]:
    return {
        "phase": "Failed",
        "reason": "NodeLost",
        "message": f"Node {node} which was running pod {pod} is unresponsive",
        "conditions": [_target(now)],
    }
