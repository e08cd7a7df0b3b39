"""Read the spec of one Pod, where a decision needs more of it than the cache of all Pods has room for."""

from __future__ import annotations

from inplace.common.jobset.kinds import Pod
from inplace.common.kube.client import KubeClient
from inplace.common.kube.resources import PODS, KubeObject


async def read_pod_spec(client: KubeClient, pod: Pod) -> KubeObject | None:
    """Return the spec of this very Pod (by UID); None if it is gone.

    It is a list of one name, because the controller may not get Pods.

    Raises:
        ApiError, TransportError: the Pod could not be read.
    """
    meta = pod.metadata
    named = {"fieldSelector": f"metadata.name={meta.name}"}
    found = (await client.list(PODS, meta.namespace, query=named))["items"]
    return next((one.get("spec") or {} for one in found if one["metadata"]["uid"] == meta.uid), None)
