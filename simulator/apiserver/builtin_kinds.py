"""The kinds that a new server serves; objects of a kind without a strategy are stored as they come."""

from __future__ import annotations

from inplace.common.kube.resources import (
    CONFIG_MAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    EVENTS,
    JOBS,
    LEASES,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    POD_GROUPS,
    PODS,
    SCHEDULING_WORKLOADS,
    SERVICE_ACCOUNTS,
    SERVICES,
    KubeObject,
    Resource,
)
from inplace.simulator.apiserver import columns
from inplace.simulator.apiserver.crd import CrdStrategy
from inplace.simulator.apiserver.jobs import JobStrategy
from inplace.simulator.apiserver.kinds import Kind
from inplace.simulator.apiserver.pod_groups import PodGroupStrategy, WorkloadStrategy
from inplace.simulator.apiserver.pods import PodStrategy
from inplace.simulator.apiserver.services import ClaimStrategy, LeaseStrategy, NamespaceStrategy, ServiceStrategy

CORE_EVENTS = Resource("", "v1", "events", "Event")

_POD_FIELDS = (
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.nominatedNodeName",
)
_EVENT_FIELDS = (
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
)
_RBAC = "rbac.authorization.k8s.io"
_ADMISSION = "admissionregistration.k8s.io"
_FLOW = "flowcontrol.apiserver.k8s.io"

_OPAQUE = (
    (Resource("", "v1", "endpoints", "Endpoints"), ("ep",)),
    (Resource("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False), ("pv",)),
    (Resource("", "v1", "resourcequotas", "ResourceQuota"), ("quota",)),
    (Resource("", "v1", "limitranges", "LimitRange"), ("limits",)),
    (Resource("apps", "v1", "deployments", "Deployment"), ("deploy",)),
    (Resource("apps", "v1", "replicasets", "ReplicaSet"), ("rs",)),
    (Resource("apps", "v1", "statefulsets", "StatefulSet"), ("sts",)),
    (Resource("apps", "v1", "daemonsets", "DaemonSet"), ("ds",)),
    (Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice"), ()),
    (Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget"), ("pdb",)),
    (Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy"), ("netpol",)),
    (Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False), ("sc",)),
    (Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False), ("pc",)),
    (Resource(_RBAC, "v1", "roles", "Role"), ()),
    (Resource(_RBAC, "v1", "rolebindings", "RoleBinding"), ()),
    (Resource(_RBAC, "v1", "clusterroles", "ClusterRole", namespaced=False), ()),
    (Resource(_RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False), ()),
    (Resource(_ADMISSION, "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy", namespaced=False), ()),
    (
        Resource(
            _ADMISSION, "v1", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", namespaced=False
        ),
        (),
    ),
    (Resource(_FLOW, "v1", "flowschemas", "FlowSchema", namespaced=False), ()),
    (Resource(_FLOW, "v1", "prioritylevelconfigurations", "PriorityLevelConfiguration", namespaced=False), ()),
)
_WITH_GENERATION = frozenset(("deployments", "replicasets", "statefulsets", "daemonsets", "poddisruptionbudgets"))


def builtin_kinds(*, serves_gangs: bool = False) -> list[Kind]:
    """Return fresh kinds for one server."""
    gangs = [
        Kind(SCHEDULING_WORKLOADS, has_generation=True, unconditional_update=False, strategy=WorkloadStrategy()),
        Kind(POD_GROUPS, has_status=True, has_generation=True, unconditional_update=False, strategy=PodGroupStrategy()),
    ]
    core_events = Kind(CORE_EVENTS, ("ev",), columns=columns.EVENT, field_labels=_EVENT_FIELDS, create_on_update=True)
    return [
        Kind(
            NAMESPACES,
            ("ns",),
            has_status=True,
            returns_deleted=True,
            strategy=NamespaceStrategy(),
            columns=columns.NAMESPACE,
            field_labels=("status.phase",),
            extra_subresources=("finalize",),
        ),
        Kind(NODES, ("no",), has_status=True, columns=columns.NODE, field_labels=("spec.unschedulable",)),
        Kind(
            PODS,
            ("po",),
            ("all",),
            has_status=True,
            has_generation=True,
            graceful=True,
            returns_deleted=True,
            strategy=PodStrategy(serves_gangs=serves_gangs),
            columns=columns.POD,
            field_labels=_POD_FIELDS,
            extra_subresources=("binding", "eviction", "log"),
        ),
        Kind(
            SERVICES,
            ("svc",),
            ("all",),
            has_status=True,
            returns_deleted=True,
            strategy=ServiceStrategy(),
            columns=columns.SERVICE,
            field_labels=("spec.clusterIP", "spec.type"),
        ),
        Kind(CONFIG_MAPS, ("cm",), columns=columns.CONFIG_MAP),
        Kind(Resource("", "v1", "secrets", "Secret"), columns=columns.SECRET, field_labels=("type",)),
        Kind(
            SERVICE_ACCOUNTS,
            ("sa",),
            returns_deleted=True,
            columns=columns.SERVICE_ACCOUNT,
            extra_subresources=("token",),
        ),
        Kind(
            PERSISTENT_VOLUME_CLAIMS,
            ("pvc",),
            has_status=True,
            returns_deleted=True,
            strategy=ClaimStrategy(),
            columns=columns.CLAIM,
        ),
        core_events,
        Kind(
            EVENTS,
            ("ev",),
            columns=columns.EVENT,
            field_labels=_EVENT_FIELDS,
            create_on_update=True,
            stored_as=core_events,
            to_stored=to_core,
            from_stored=from_core,
        ),
        Kind(
            JOBS,
            (),
            ("all",),
            has_status=True,
            has_generation=True,
            orphans_by_default=True,
            strategy=JobStrategy(serves_gangs=serves_gangs),
            columns=columns.JOB,
            field_labels=("status.successful",),
        ),
        Kind(
            LEASES, columns=columns.LEASE, strategy=LeaseStrategy(), unconditional_update=False, create_on_update=True
        ),
        Kind(
            CUSTOM_RESOURCE_DEFINITIONS,
            ("crd", "crds"),
            ("api-extensions",),
            has_status=True,
            has_generation=True,
            unconditional_update=False,
            strategy=CrdStrategy(),
            columns=columns.CUSTOM_RESOURCE_DEFINITION,
        ),
        *(
            Kind(resource, short_names, has_status=True, has_generation=resource.plural in _WITH_GENERATION)
            for resource, short_names in _OPAQUE
        ),
        *(gangs if serves_gangs else ()),
    ]


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
    """Return an events.k8s.io/v1 Event in the core form, in which both groups' Events are stored.

    Source: k8s.io/kubernetes/pkg/apis/events/v1/conversion.go.
    """
    return {_TO_CORE.get(key, key): value for key, value in event.items()} | {"apiVersion": "v1"}


def from_core(event: KubeObject) -> KubeObject:
    """Return a core Event in the events.k8s.io/v1 form."""
    return {_FROM_CORE.get(key, key): value for key, value in event.items()} | {"apiVersion": "events.k8s.io/v1"}
