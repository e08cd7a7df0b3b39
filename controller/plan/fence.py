"""
Let Kubernetes replace the Pods of a dead node at once, where their agents keep leases (docs/adr/0072).

Three things stand in the Job: the length of the lease, which the agents read from their Pod; a toleration that ends the
moment Kubernetes taints the node as unreachable, instead of 300 s later; and a replacement beside the Pod that cannot
end there. The barrier still waits for that Pod, until its lease is over. No right on nodes or Pods is needed.
"""

from __future__ import annotations

from typing import Any, Final

from inplace.common import wire
from inplace.common.epoch.errors import RemoteProtocolError
from inplace.common.kube.resources import KubeObject
from inplace.controller.spec.jobset import JobSet
from inplace.controller.spec.requests import read_fence

UNREACHABLE: Final = "node.kubernetes.io/unreachable"
TOLERATION: Final = {"key": UNREACHABLE, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0}
REPLACED_EARLY: Final = "TerminatingOrFailed"


def fence_after_s(jobset: JobSet) -> int | None:
    """Return the length of its workers' leases; None where there are none, or it cannot be read."""
    try:
        return read_fence(jobset.annotations) if jobset.is_in_place else None
    except RemoteProtocolError:
        return None


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
