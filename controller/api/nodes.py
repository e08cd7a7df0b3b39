"""Read the labels of nodes when they are needed: few JobSets need them, and a watch would cost every cluster."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from inplace.common.kube.client import KubeClient
from inplace.common.kube.errors import NotFound
from inplace.common.kube.resources import NODES

REMEMBERED_MAX: Final = 10_000  # (node, label) pairs, the oldest go first; a megabyte


@dataclass(slots=True)
class Nodes:
    """Reads one label of one node, once: a node does not change its rack while a Job runs on it."""

    client: KubeClient
    _known: OrderedDict[tuple[str, str], str] = field(default_factory=OrderedDict)

    async def label(self, node: str, key: str) -> str | None:
        """Return the value of a node's label; None when node or label is not there.

        Raises:
            ApiError, TransportError: the node could not be read.
        """
        if (node, key) in self._known:
            return self._known[node, key]
        try:
            found = await self.client.get(NODES, None, node)
        except NotFound:
            return None
        value = (found["metadata"].get("labels") or {}).get(key)
        if value is None:
            return None
        self._known[node, key] = str(value)
        if len(self._known) > REMEMBERED_MAX:
            self._known.popitem(last=False)
        return str(value)
