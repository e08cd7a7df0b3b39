"""A custom resource with every feature that the suite checks, so that it needs no deploy/; small built-in objects."""

from __future__ import annotations

from typing import Any

from inplace.common.kube.resources import KubeObject, Resource

WIDGETS = Resource("example.com", "v1", "widgets", "Widget")

_INT32 = {"type": "integer", "format": "int32"}

SPEC: dict[str, Any] = {
    "type": "object",
    "properties": {
        "size": _INT32 | {"minimum": 0, "maximum": 100, "default": 1},
        "count": _INT32,
        "mode": {"type": "string", "enum": ["Fast", "Slow"], "default": "Fast"},
        "note": {"type": "string", "maxLength": 10, "pattern": "^[a-z]*$"},
        "ratio": {"x-kubernetes-int-or-string": True},
        "counter": _INT32
        | {"x-kubernetes-validations": [{"rule": "self >= oldSelf", "message": "counter must not decrease"}]},
        "fixed": {
            "type": "string",
            "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "Value is immutable"}],
        },
        "low": _INT32,
        "high": _INT32,
        "nested": {
            "type": "object",
            "default": {},
            "properties": {"enabled": {"type": "boolean", "default": True}, "word": {"type": "string"}},
        },
        "parts": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {"name": {"type": "string"}, "value": {"type": "string", "default": "none"}},
            },
        },
        "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "steps": {"type": "array", "maxItems": 3, "items": {"type": "string"}},
        "options": {"type": "object", "additionalProperties": {"type": "string"}},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
    "x-kubernetes-validations": [
        {"rule": "!has(self.low) || !has(self.high) || self.low <= self.high", "message": "low must not exceed high"}
    ],
}

STATUS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "phase": {"type": "string"},
        "epoch": _INT32
        | {
            "minimum": 0,
            "x-kubernetes-validations": [{"rule": "self >= oldSelf", "message": "epoch must not decrease"}],
        },
    },
}


def _column(name: str, column_type: str, path: str, priority: int = 0) -> dict[str, Any]:
    return {"name": name, "type": column_type, "jsonPath": path, "priority": priority}


COLUMNS = [
    _column("Size", "integer", ".spec.size"),
    _column("Phase", "string", ".status.phase"),
    _column("Age", "date", ".metadata.creationTimestamp"),
    _column("Epoch", "integer", ".status.epoch", 1),
    _column("Disabled", "string", r".metadata.annotations['example\.com/disabled']", 1),
    _column("Enabled", "string", ".spec.nested.enabled", 1),
    _column("UID", "string", ".metadata.uid", 1),
]

CRD: KubeObject = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "shortNames": ["wd"]},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "additionalPrinterColumns": COLUMNS,
                "selectableFields": [{"jsonPath": ".spec.mode"}],
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "required": ["spec"],
                        "properties": {"spec": SPEC, "status": STATUS},
                    }
                },
            }
        ],
    },
}


def widget(name: str = "w", **spec: Any) -> KubeObject:
    """Return a Widget."""
    return {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec}


def config_map(name: str = "c", **parts: Any) -> KubeObject:
    """Return a ConfigMap, which has no spec."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, **parts}


def pod(name: str = "p", **spec: Any) -> KubeObject:
    """Return a Pod with one container, if its spec says nothing else."""
    body = {"containers": [{"name": "c", "image": "i"}], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": body}


def job(name: str = "j", **spec: Any) -> KubeObject:
    """Return a Job that is suspended: the real Job controller makes no Pods."""
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i:1"}]}}
    body = {"suspend": True, "template": template, **spec}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": body}
