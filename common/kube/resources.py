"""The kinds that this project uses, with their API paths."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlencode

from inplace.common.bare.record import record

KubeObject = dict[str, Any]


@record
class Resource:
    """One kind: group ("" is core), version, plural, kind, and whether it lives in namespaces."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """Return `group/version`, or `version` for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(
        self,
        namespace: str | None = None,
        name: str | None = None,
        *,
        subresource: str | None = None,
        query: dict[str, str] | None = None,
    ) -> str:
        """Return the REST path; no namespace means all namespaces (or a cluster-scoped kind)."""
        parts = [f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"]
        if namespace is not None and self.namespaced:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        if name is not None:
            parts.append(quote(name, safe=""))
        if subresource is not None:
            parts.append(subresource)
        return "/".join(parts) + (f"?{urlencode(query)}" if query else "")


PODS = Resource("", "v1", "pods", "Pod")
SERVICES = Resource("", "v1", "services", "Service")
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
PERSISTENT_VOLUME_CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
EVENTS = Resource("events.k8s.io", "v1", "events", "Event")
JOBS = Resource("batch", "v1", "jobs", "Job")
ROLES = Resource("rbac.authorization.k8s.io", "v1", "roles", "Role")
ROLE_BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
CUSTOM_RESOURCE_DEFINITIONS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)
JOBSETS = Resource("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet")
SCHEDULING_WORKLOADS = Resource("scheduling.k8s.io", "v1beta1", "workloads", "Workload")
POD_GROUPS = Resource("scheduling.k8s.io", "v1beta1", "podgroups", "PodGroup")
EVICTION_REQUESTS = Resource("lifecycle.k8s.io", "v1alpha1", "evictionrequests", "EvictionRequest")
EVICTIONS = Resource("lifecycle.k8s.io", "v1alpha1", "evictions", "Eviction")
WORKLOADS = Resource("kueue.x-k8s.io", "v1beta2", "workloads", "Workload")
