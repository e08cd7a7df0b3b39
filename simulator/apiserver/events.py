"""
Serve Events in both of their groups from one collection, as the real server does.

Stored in the core form, which kubectl reads; controllers write events.k8s.io.
Source: k8s.io/kubernetes/pkg/apis/events/v1/conversion.go.
"""

from __future__ import annotations

from inplace.common.kube.resources import KubeObject

_TO_CORE = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_FROM_CORE = {core: new for new, core in _TO_CORE.items()}


def to_core(event: KubeObject) -> KubeObject:
    """Return an events.k8s.io/v1 Event in the core form."""
    return {_TO_CORE.get(key, key): value for key, value in event.items()} | {"apiVersion": "v1"}


def from_core(event: KubeObject) -> KubeObject:
    """Return a core Event in the events.k8s.io/v1 form."""
    return {_FROM_CORE.get(key, key): value for key, value in event.items()} | {"apiVersion": "events.k8s.io/v1"}
