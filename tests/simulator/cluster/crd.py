"""The smallest JobSet definition that the cluster's own tests need; deploy/crd is tested elsewhere."""

from __future__ import annotations

from typing import Any

from inplace.common import wire

_ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_SYNCED = {"name": wire.COLUMN_SYNCED, "type": "integer", "jsonPath": f".status.{wire.SYNCED_EPOCH}"}
_DEPRECATED = {
    "name": wire.COLUMN_DEPRECATED,
    "type": "integer",
    "jsonPath": f".status.{wire.DEPRECATED_EPOCH}",
}
_STRATEGY = {
    "name": wire.COLUMN_STRATEGY,
    "type": "string",
    "jsonPath": ".spec.failurePolicy.restartStrategy",
}
_UID = {"name": wire.COLUMN_UID, "type": "string", "jsonPath": ".metadata.uid"}
_DISABLED = {
    "name": wire.COLUMN_DISABLED,
    "type": "string",
    "jsonPath": r".metadata.annotations['jobset\.sigs\.k8s\.io/disable-in-place-restart']",
}
_CURRENT = {"name": wire.COLUMN_CURRENT, "type": "integer", "jsonPath": f".status.{wire.CURRENT_ATTEMPT}"}
_PREVIOUS = {"name": wire.COLUMN_PREVIOUS, "type": "integer", "jsonPath": f".status.{wire.PREVIOUS_ATTEMPT}"}
_COLUMNS = (_SYNCED, _DEPRECATED, _CURRENT, _PREVIOUS, _STRATEGY, _DISABLED, _UID)

JOBSET_CRD: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "jobsets.jobset.x-k8s.io"},
    "spec": {
        "group": wire.API_GROUP,
        "scope": "Namespaced",
        "names": {"plural": "jobsets", "singular": "jobset", "kind": wire.KIND, "listKind": "JobSetList"},
        "versions": [
            {
                "name": "v1alpha2",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {"spec": _ANYTHING, "status": _ANYTHING},
                    }
                },
                "additionalPrinterColumns": [column | {"priority": 1} for column in _COLUMNS],
            }
        ],
    },
}
