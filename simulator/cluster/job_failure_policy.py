"""
Match a failed Pod against its Job's podFailurePolicy.

Source: pkg/controller/job/pod_failure_policy.go.
"""

from __future__ import annotations

from typing import Any

from inplace.common.kube.resources import KubeObject

Verdict = tuple[str, str]
"""Action (FailJob, FailIndex, Ignore, Count) and the message for the Job's condition."""

COUNT: Verdict = ("Count", "")


def judge(pod: KubeObject, policy: dict[str, Any] | None) -> Verdict:
    """Return the action of the first matching rule; Count when none matches."""
    for position, rule in enumerate((policy or {}).get("rules") or ()):
        if "onExitCodes" in rule:
            words = _exit_code_match(pod, rule["onExitCodes"])
        else:
            words = _condition_match(pod, rule.get("onPodConditions") or ())
        if words:
            return rule["action"], f"{words} matching {rule['action']} rule at index {position}"
    return COUNT


def _exit_code_match(pod: KubeObject, requirement: dict[str, Any]) -> str:
    status = pod.get("status") or {}
    for container in (*status.get("containerStatuses", ()), *status.get("initContainerStatuses", ())):
        if requirement.get("containerName") not in (None, container["name"]):
            continue
        code = (container.get("state", {}).get("terminated") or {}).get("exitCode", 0)
        # Zero never matches NotIn: a container that succeeded has not failed the Pod.
        if code != 0 and (code in requirement["values"]) == (requirement["operator"] == "In"):
            meta = pod["metadata"]
            where = f"Container {container['name']} for pod {meta['namespace']}/{meta['name']}"
            return f"{where} failed with exit code {code}"
    return ""


def _condition_match(pod: KubeObject, patterns: Any) -> str:
    statuses = {c["type"]: c["status"] for c in (pod.get("status") or {}).get("conditions") or ()}
    for pattern in patterns:
        if statuses.get(pattern["type"]) == pattern.get("status", "True"):
            meta = pod["metadata"]
            return f"Pod {meta['namespace']}/{meta['name']} has condition {pattern['type']}"
    return ""
