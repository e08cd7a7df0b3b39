"""
Read in which topology domain a node is, in which one a Pod asks to be, or a Pod's whole spec, when a decision needs it.

Few JobSets need it: a watch of nodes would cost every cluster, and the cache of all Pods has no room for their specs.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from inplace.common.jobset.kinds import Pod
from inplace.common.kube.client import KubeClient
from inplace.common.kube.errors import NotFound
from inplace.common.kube.resources import NODES, PODS, KubeObject

REMEMBERED_MAX: Final = 20_000  # answers, the oldest go first; two megabytes


@dataclass(slots=True)
class Domains:
    """Reads each once: a node keeps its label while a Job runs there, and a Pod its selector after its gates went."""

    client: KubeClient
    _known: OrderedDict[tuple[str, str, str], str] = field(default_factory=OrderedDict)

    async def of_node(self, node: str, key: str) -> str | None:
        """Return the value of a node's label; None when node or label is not there.

        Raises:
            ApiError, TransportError: the node could not be read.
        """
        asked = (NODES.plural, node, key)
        if (known := self._known.get(asked)) is not None:
            return known
        try:
            found = await self.client.get(NODES, None, node)
        except NotFound:
            return None
        value = (found["metadata"].get("labels") or {}).get(key)
        return None if value is None else self._remember(asked, str(value))

    async def asked_by(self, pod: Pod, key: str) -> str:
        """Return the value of a label that a Pod's node must have; "" when it asks for none, or the Pod is gone.

        Raises:
            ApiError, TransportError: the Pod could not be read.
        """
        asked = (PODS.plural, pod.metadata.uid, key)
        if (known := self._known.get(asked)) is not None:
            return known
        spec = await read_pod_spec(self.client, pod) or {}
        return self._remember(asked, str((spec.get("nodeSelector") or {}).get(key, "")))

    def _remember(self, asked: tuple[str, str, str], value: str) -> str:
        self._known[asked] = value
        if len(self._known) > REMEMBERED_MAX:
            self._known.popitem(last=False)
        return value


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
