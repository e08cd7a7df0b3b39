"""
The rules of Services, Namespaces, Leases and claims, as far as this project relies on them.

Source: k8s.io/kubernetes/pkg/registry/core/service, .../core/namespace, pkg/apis/coordination/validation.
"""

# ruff: noqa: ARG002 -- every strategy has the same signatures and uses the arguments that it needs

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from inplace.common.kube.resources import KubeObject
from inplace.simulator.apiserver.kinds import Strategy, WriteContext
from inplace.simulator.apiserver.status import StatusCause, bad_value

HEADLESS = "None"
_SERVICE_DEFAULTS: dict[str, Any] = {
    "type": "ClusterIP",
    "sessionAffinity": "None",
    "ipFamilies": ["IPv4"],
    "ipFamilyPolicy": "SingleStack",
    "internalTrafficPolicy": "Cluster",
}
_ADDRESSES_MAX = 65_536  # of 10.96.0.0/16; addresses are not returned when a Service is deleted


class ServiceStrategy(Strategy):
    """Services: a headless one stays headless; another gets an address to which nothing is routed."""

    def __init__(self) -> None:
        self._allocated = 0

    def prepare_create(self, obj: KubeObject, context: WriteContext) -> KubeObject:
        """Fill in defaults and allocate the cluster address."""
        spec = _SERVICE_DEFAULTS | (obj.get("spec") or {})
        if not spec.get("clusterIP") and spec["type"] != "ExternalName":
            self._allocated = (self._allocated + 1) % _ADDRESSES_MAX
            spec["clusterIP"] = f"10.96.{self._allocated >> 8}.{self._allocated & 255}"
        if spec.get("clusterIP"):
            spec["clusterIPs"] = [spec["clusterIP"]]
        return obj | {"spec": _with_ports(spec), "status": {"loadBalancer": {}}}

    def prepare_update(self, new: KubeObject, old: KubeObject, context: WriteContext) -> KubeObject:
        """Keep the allocated address when the client does not name one."""
        spec = dict(new.get("spec") or {})
        for field in _SERVICE_DEFAULTS:
            if field in old["spec"]:
                spec.setdefault(field, old["spec"][field])
        if not spec.get("clusterIP") and "clusterIP" in old["spec"]:
            spec["clusterIP"], spec["clusterIPs"] = old["spec"]["clusterIP"], old["spec"]["clusterIPs"]
        return new | {"spec": _with_ports(spec)}

    def validate_create(self, obj: KubeObject) -> Iterable[StatusCause]:
        """Return the broken rules of a new Service."""
        spec = obj["spec"]
        if not spec.get("ports") and spec.get("clusterIP") != HEADLESS and spec["type"] != "ExternalName":
            yield StatusCause("spec.ports", "Required value", "FieldValueRequired")

    def validate_update(self, new: KubeObject, old: KubeObject) -> Iterable[StatusCause]:
        """Return the rules that an update breaks: the address never changes."""
        if new["spec"].get("clusterIP") != old["spec"].get("clusterIP"):
            yield bad_value("spec.clusterIPs[0]", [new["spec"].get("clusterIP")], "may not change once set")


def _with_ports(spec: dict[str, Any]) -> dict[str, Any]:
    """Return the spec with the defaults of its ports."""
    if not spec.get("ports"):
        return spec
    return spec | {"ports": [{"protocol": "TCP", "targetPort": port.get("port")} | port for port in spec["ports"]]}


class NamespaceStrategy(Strategy):
    """Namespaces: labelled with their name, kept by a finalizer until they are empty."""

    def prepare_create(self, obj: KubeObject, context: WriteContext) -> KubeObject:
        """Fill in label, finalizer and phase."""
        meta = obj["metadata"]
        labels = (meta.get("labels") or {}) | {"kubernetes.io/metadata.name": meta["name"]}
        return obj | {
            "metadata": meta | {"labels": labels},
            "spec": (obj.get("spec") or {}) | {"finalizers": ["kubernetes"]},
            "status": {"phase": "Active"},
        }

    def prepare_update(self, new: KubeObject, old: KubeObject, context: WriteContext) -> KubeObject:
        """Keep the finalizers: only the `finalize` subresource changes them."""
        return new | {"spec": old["spec"]}


class ClaimStrategy(Strategy):
    """PersistentVolumeClaims start Pending."""

    def prepare_create(self, obj: KubeObject, context: WriteContext) -> KubeObject:
        """Fill in the volume mode and the initial phase."""
        spec = {"volumeMode": "Filesystem"} | (obj.get("spec") or {})
        return obj | {"spec": spec, "status": {"phase": "Pending"}}


class LeaseStrategy(Strategy):
    """Leases: durations and counts are positive."""

    def validate_create(self, obj: KubeObject) -> Iterable[StatusCause]:
        """Return the broken rules of a Lease."""
        spec = obj.get("spec") or {}
        if spec.get("leaseDurationSeconds") is not None and spec["leaseDurationSeconds"] <= 0:
            yield bad_value("spec.leaseDurationSeconds", spec["leaseDurationSeconds"], "must be greater than 0")
        if spec.get("leaseTransitions") is not None and spec["leaseTransitions"] < 0:
            yield bad_value("spec.leaseTransitions", spec["leaseTransitions"], "must be greater than or equal to 0")

    def validate_update(self, new: KubeObject, old: KubeObject) -> Iterable[StatusCause]:
        """Return the broken rules of a changed Lease."""
        return self.validate_create(new)
