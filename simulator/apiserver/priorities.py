"""
Give a new Pod the priority of its PriorityClass.

Source: k8s.io/kubernetes plugin/pkg/admission/priority. Not there: a class that is the default of all Pods.
"""

from __future__ import annotations

from typing import Final

from inplace.common.kube.resources import KubeObject
from inplace.simulator.apiserver import status
from inplace.simulator.apiserver.store import CollectionKey, Store

_CLASSES: Final[CollectionKey] = ("scheduling.k8s.io", "priorityclasses")
_BUILTIN: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


def with_priority(store: Store, pod: KubeObject) -> KubeObject:
    """Return the Pod with its priority.

    Raises:
        StatusError: there is no such class.
    """
    name, meta = pod["spec"].get("priorityClassName"), pod["metadata"]
    if not name:
        return pod
    found = store.get(_CLASSES, "", name) or ({"value": _BUILTIN[name]} if name in _BUILTIN else None)
    if found is None:
        raise status.forbidden(f'pods "{meta["name"]}" is forbidden: no PriorityClass with name {name} was found')
    policy = found.get("preemptionPolicy") or "PreemptLowerPriority"
    return pod | {"spec": pod["spec"] | {"priority": int(found["value"]), "preemptionPolicy": policy}}
