"""
EvictionRequests and Evictions: somebody wants a Pod gone, and asks who is responsible for it to prepare that. Pure.

An EvictionRequest says that a Pod should go. Kubernetes makes an Eviction of all requests for a Pod, and lets the
responders that the Pod's spec names prepare it one after the other: the active one reports in its status at least every
20 minutes, and when it is done. Source: KEP-4563; k8s.io/api lifecycle/v1alpha1, alpha and off in Kubernetes 1.37.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from inplace.common.kube.codec import SlimMeta, slim
from inplace.common.kube.resources import KubeObject
from inplace.common.wire.names import EVICTION_RESPONDER

_ENDS: Final = ("TargetEvicted", "Failed")


class PodReference(msgspec.Struct, frozen=True, gc=False):
    """The Pod that should go."""

    name: str = ""
    uid: str = ""


class _Target(msgspec.Struct, frozen=True, gc=False):
    pod: PodReference | None = None


class _Spec(msgspec.Struct, frozen=True, gc=False):
    target: _Target = _Target()
    requester: str = ""
    intent: str = ""


class _Condition(msgspec.Struct, frozen=True, gc=False):
    type: str = ""
    status: str = ""


class _Responder(msgspec.Struct, frozen=True, gc=False):
    name: str = ""
    state: str = ""


class _Status(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    conditions: tuple[_Condition, ...] | None = None
    target_responders: tuple[_Responder, ...] | None = None
    responders: tuple[dict[str, Any], ...] | None = None


class EvictionObject(msgspec.Struct, frozen=True, gc=False):
    """An EvictionRequest or an Eviction, slim."""

    metadata: SlimMeta
    spec: _Spec = _Spec()
    status: _Status = _Status()

    @property
    def pod(self) -> PodReference:
        """Return the Pod that should go."""
        return self.spec.target.pod or PodReference()

    @property
    def is_over(self) -> bool:
        """Say whether the Pod is gone, or nobody works on it any more."""
        return any(one.status == "True" and one.type in _ENDS for one in self.status.conditions or ())

    @property
    def wants_away(self) -> bool:
        """Say whether the Pod should go: as somebody intends, or as we are asked to prepare."""
        return not self.is_over and (self.spec.intent == "Eviction" or self.is_ours)

    @property
    def is_ours(self) -> bool:
        """Say whether we are the responder whose turn it is."""
        is_active = any(one == ACTIVE for one in self.status.target_responders or ())
        own = self.own
        return is_active and own is not None and not own.get("completionTime")

    @property
    def own(self) -> KubeObject | None:
        """Return what the status says of us as a responder; None where it does not."""
        return next((one for one in self.status.responders or () if one.get("name") == EVICTION_RESPONDER), None)

    def report(self, message: str, now: str, *, is_done: bool) -> KubeObject:
        """Return the patch of the status by which we report.

        Args:
            message: how the work stands.
            now: in whole seconds.
            is_done: the next responder may go on.
        """
        own = self.own or {}
        now = max(now, own.get("startTime") or "")  # the API refuses a time before it; clocks differ
        told = own | {"message": message, "heartbeatTime": max(now, own.get("heartbeatTime") or "")}
        told |= {"completionTime": now} if is_done else {}
        listed = [told if one.get("name") == EVICTION_RESPONDER else one for one in self.status.responders or ()]
        metadata = {"uid": self.metadata.uid, "resourceVersion": self.metadata.resource_version}
        return {"metadata": metadata, "status": {"responders": listed}}


ACTIVE: Final = _Responder(EVICTION_RESPONDER, "Active")
EVICTION_CODEC: Final = slim(EvictionObject)
