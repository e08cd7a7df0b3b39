"""
Let Kubernetes replace the Pods of a dead node at once, where their agents keep leases (docs/adr/0072).

Three things stand in the Job: the length of the lease, which the agents read from their Pod; a toleration that ends the
moment Kubernetes taints the node as unreachable, instead of 300 s later; and a replacement beside the Pod that cannot
end there. The barrier still waits for that Pod, until its lease is over. No right on nodes or Pods is needed.
"""

from __future__ import annotations

from typing import Any, Final

from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire

UNREACHABLE: Final = "node.kubernetes.io/unreachable"
TOLERATION: Final = {"key": UNREACHABLE, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0}
REPLACED_EARLY: Final = "TerminatingOrFailed"


def fence(job_spec: dict[str, Any], after_s: int) -> None:
    """Change a Job's spec; one with a podFailurePolicy stays as it is: Kubernetes refuses the two together.

    Of several tolerations that match a taint, Kubernetes takes the shortest, so the user's own may stay.
    """
    if job_spec.get("podFailurePolicy"):
        return
    job_spec["podReplacementPolicy"] = REPLACED_EARLY
    template: KubeObject = job_spec["template"]
    template["metadata"]["annotations"][wire.FENCE_AFTER] = str(after_s)
    tolerations = template["spec"].get("tolerations") or []
    template["spec"]["tolerations"] = [*tolerations, dict(TOLERATION)]
