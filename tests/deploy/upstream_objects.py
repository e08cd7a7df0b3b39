"""
The objects of a cluster that ran upstream's JobSet controller: its CRD by shape, a webhook, and stored JobSets.

Written by hand from upstream's API (kubernetes-sigs/jobset, api/jobset/v1alpha2) and its webhooks' defaults. Opaque
where upstream embeds the schemas of Jobs and claims: what matters here is what may be stored, and who owns which field.
"""

from __future__ import annotations

from typing import Any, Final

from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from tests.controller.manifests import changed, jobset, replicated_job
from tests.deploy.crd_cases import crd_without_rules
from tests.deploy.spec_cases import claim, claims, plain

DEFAULTED: Final[dict[str, Any]] = {
    "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
    "successPolicy": {"operator": "All"},
    "startupPolicy": {"startupPolicyOrder": "AnyOrder"},
}
"""The defaults of upstream's webhook at creation."""

_COLUMNS: Final = (
    ("TerminalState", "string", ".status.terminalState"),
    ("Restarts", "string", ".status.restarts"),
    ("Completed", "string", '.status.conditions[?(@.type=="Completed")].status'),
    ("Suspended", "string", ".spec.suspend"),
    ("Age", "date", ".metadata.creationTimestamp"),
)
_OURS: Final = (
    wire.SYNCED_EPOCH,
    wire.DEPRECATED_EPOCH,
    wire.EXEMPT_EPOCHS,
    wire.LAST_EXEMPT_EPOCH,
    wire.SCOPED_EPOCHS,
)


def upstream_crd() -> KubeObject:
    """Return the CRD in upstream's shape: its columns, no short name, no status field of ours, no rule of ours."""
    found = crd_without_rules()
    found["metadata"]["annotations"] = {"controller-gen.kubebuilder.io/version": "v0.18.0"}
    del found["spec"]["names"]["shortNames"]
    version = found["spec"]["versions"][0]
    version["additionalPrinterColumns"] = [
        {"name": name, "type": kind, "jsonPath": path} for name, kind, path in _COLUMNS
    ]
    status = version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    for name in _OURS:
        del status[name]
    return found


def webhook(service: str = "jobset-webhook-service") -> KubeObject:
    """Return upstream's validating webhook, whose server is gone: with failurePolicy Fail it refuses every JobSet."""
    client = {"service": {"name": service, "namespace": "jobset-system", "path": "/validate"}}
    rule = {
        "apiGroups": [wire.API_GROUP],
        "apiVersions": ["v1alpha2"],
        "operations": ["CREATE", "UPDATE"],
        "resources": ["jobsets"],
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "jobset-validating-webhook-configuration"},
        "webhooks": [
            {
                "name": "vjobset.kb.io",
                "admissionReviewVersions": ["v1"],
                "clientConfig": client,
                "failurePolicy": "Fail",
                "sideEffects": "None",
                "timeoutSeconds": 2,
                "rules": [rule],
            }
        ],
    }


def _condition(kind: str, reason: str) -> KubeObject:
    return {
        "type": kind,
        "status": "True",
        "reason": reason,
        "message": "said upstream",
        "lastTransitionTime": "2026-01-02T03:04:05Z",
    }


def _counts(**counts: int) -> list[KubeObject]:
    zeros = dict.fromkeys(("ready", "succeeded", "failed", "active", "suspended"), 0)
    return [{"name": "workers"} | zeros | counts]


def _stored(**spec: Any) -> KubeObject:
    return jobset(**(DEFAULTED | spec))


_MOUNTED: Final = changed(
    replicated_job(), "template.spec.template.spec.containers.0.volumeMounts", [{"name": "data", "mountPath": "/data"}]
)

STORED: Final[dict[str, tuple[KubeObject, KubeObject]]] = {
    "running": (_stored(), {"restarts": 0, "replicatedJobsStatus": _counts(active=1, ready=1)}),
    "in-its-third-attempt": (
        _stored(),
        {"restarts": 0, wire.CURRENT_ATTEMPT: 2, wire.PREVIOUS_ATTEMPT: 1, "replicatedJobsStatus": _counts(active=1)},
    ),
    "recreated-twice": (_stored(strategy="Recreate"), {"restarts": 2, "restartsCountTowardsMax": 1}),
    "suspended-by-a-queue": (
        _stored(suspend=True, managedBy=wire.MANAGED_BY_BUILT_IN),
        {"restarts": 0, "conditions": [_condition("Suspended", "SuspendedJobs")]},
    ),
    "another-cluster-s": (_stored(managedBy="kueue.x-k8s.io/multikueue"), {"restarts": 0}),
    "failed": (
        _stored(strategy=None),
        {"restarts": 3, "terminalState": "Failed", "conditions": [_condition("Failed", "ReachedMaxRestarts")]},
    ),
    "completed": (
        _stored(strategy=None, ttlSecondsAfterFinished=100),
        {"restarts": 0, "terminalState": "Completed", "conditions": [_condition("Completed", "AllJobsCompleted")]},
    ),
    "with-claims": (_stored(jobs=[_MOUNTED], volumeClaimPolicies=claims(claim("data"))), {"restarts": 0}),
    "older-than-the-webhook": (jobset(strategy=None), {}),
    "empty": (_stored(jobs=[], strategy=None), {"restarts": 0}),
    "of-no-replicas": (_stored(jobs=[replicated_job(replicas=0)], strategy=None), {"restarts": 0}),
    "negative-max-restarts": (_stored(restarts_max=-1), {"restarts": 0}),
    # Upstream validates on creation only: these came in by an update.
    "in-place-with-a-backoff-limit": (
        changed(_stored(), "spec.replicatedJobs.0.template.spec.backoffLimit", 6),
        {"restarts": 0},
    ),
    "coordinated-by-nobody": (plain(coordinator={"replicatedJob": "x"}, **DEFAULTED), {"restarts": 0}),
    "waiting-for-itself": (
        _stored(jobs=[replicated_job() | {"dependsOn": [{"name": "workers", "status": "Ready"}]}], strategy=None),
        {"restarts": 0},
    ),
}
"""JobSets and their status, by name."""
