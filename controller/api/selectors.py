"""Read the nodeSelector of a Pod that waits for the scheduler: few do, and the cache of all Pods has no room for it."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from inplace.common.kube.client import KubeClient
from inplace.controller.api.pod_specs import read_pod_spec
from inplace.controller.spec.kinds import Pod

REMEMBERED_MAX: Final = 10_000  # (Pod, label) pairs, the oldest go first; a megabyte


@dataclass(slots=True)
class Selectors:
    """Reads one label of a Pod's nodeSelector, once: it cannot change after the Pod's gates were lifted."""

    client: KubeClient
    _known: OrderedDict[tuple[str, str], str] = field(default_factory=OrderedDict)

    async def value(self, pod: Pod, key: str) -> str:
        """Return the value of a label that a Pod's node must have; "" when it asks for none, or the Pod is gone.

        Raises:
            ApiError, TransportError: the Pod could not be read.
        """
        meta = pod.metadata
        if (known := self._known.get((meta.uid, key))) is not None:
            return known
        spec = await read_pod_spec(self.client, pod) or {}
        value = str((spec.get("nodeSelector") or {}).get(key, ""))
        self._known[meta.uid, key] = value
        if len(self._known) > REMEMBERED_MAX:
            self._known.popitem(last=False)
        return value
