"""
Turn CustomResourceDefinitions into served kinds, and hold their objects to the schema.

All versions of a CRD share one collection; converting between them changes the apiVersion only. A CRD is Established
at once.
Source: k8s.io/apiextensions-apiserver.
"""

# ruff: noqa: ARG002 -- every strategy has the same signatures and uses the arguments that it needs

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import msgspec

from inplace.common.kube.resources import KubeObject, Resource
from inplace.simulator.apiserver.cel_rules import check_rules
from inplace.simulator.apiserver.kinds import Kind, Strategy, WriteContext
from inplace.simulator.apiserver.schema import Schema, drop_nulls, fill_defaults, prune
from inplace.simulator.apiserver.schema_validation import duplicates, validate
from inplace.simulator.apiserver.status import StatusCause, bad_request, bad_value, required
from inplace.simulator.apiserver.table import custom_columns

_BLOCKING = frozenset(
    ("FieldValueNotSupported", "FieldValueRequired", "FieldValueTooLong", "FieldValueTooMany", "FieldValueTypeInvalid")
)
"""Breaches after which CEL is not run. Source: apiextensions-apiserver customresource/strategy.go hasBlockingErr."""

_NOT_CHECKED = (
    "some validation rules were not checked because the object was invalid; correct the existing errors to complete "
    "validation"
)


class CustomStrategy(Strategy):
    """Objects of a custom kind: pruned, defaulted, validated by schema and by CEL."""

    def __init__(self, resource: Resource, schema: Schema) -> None:
        self._resource = resource
        self._schema = schema

    def decode(self, obj: KubeObject, *, strict: bool) -> KubeObject:
        """Return the object without unknown fields and with defaults; strict refuses unknown fields instead."""
        dropped: list[str] = []
        obj = prune(obj, self._schema, dropped, root=True)
        if strict and dropped:
            unknown = ", ".join(f'unknown field "{path}"' for path in sorted(dropped))
            kind, version = self._resource.kind, self._resource.version
            raise bad_request(
                f'{kind} in version "{version}" cannot be handled as a {kind}: strict decoding error: {unknown}'
            )
        defaulted: KubeObject = fill_defaults(drop_nulls(obj, self._schema), self._schema)
        return defaulted

    def validate_create(self, obj: KubeObject) -> Iterable[StatusCause]:
        """Return the broken rules of a new object."""
        return self._causes(obj, None, self._schema.properties)

    def validate_update(self, new: KubeObject, old: KubeObject) -> Iterable[StatusCause]:
        """Return the broken rules of a changed object, transition rules included."""
        return self._causes(new, old, self._schema.properties)

    def validate_status(self, new: KubeObject, old: KubeObject) -> Iterable[StatusCause]:
        """Return the broken rules of a changed status; of the rest, the server looks at rules and duplicates only."""
        return self._causes(new, old, ("status",))

    def _causes(self, new: KubeObject, old: KubeObject | None, fields: Iterable[str]) -> list[StatusCause]:
        causes: list[StatusCause] = []
        for field in fields:
            child = self._schema.child(field)
            if child is not None and field in new and field not in ("apiVersion", "kind", "metadata"):
                validate(new[field], child, field, causes, (old or {}).get(field))
        if found := duplicates(new, self._schema):
            causes += found if old is None or not duplicates(old, self._schema) else []
        causes.extend(required(field) for field in self._schema.raw.get("required") or () if field not in new)
        has_name = new["metadata"].get("name")  # its own breach, of which the server tells elsewhere
        if has_name and not any(cause.reason in _BLOCKING for cause in causes):
            check_rules(new, old, self._schema, "", causes)
        elif self._schema.has_rules:
            causes.append(StatusCause("<nil>", f"Invalid value: null: {_NOT_CHECKED}"))
        return causes


class CrdStrategy(Strategy):
    """CustomResourceDefinitions themselves."""

    def prepare_create(self, obj: KubeObject, context: WriteContext) -> KubeObject:
        """Fill in names and an Established status."""
        spec = dict(obj.get("spec") or {})
        names = dict(spec.get("names") or {})
        names.setdefault("singular", str(names.get("kind", "")).lower())
        names.setdefault("listKind", f"{names.get('kind', '')}List")
        spec["names"] = names
        spec.setdefault("conversion", {"strategy": "None"})
        return obj | {"spec": spec, "status": _established(spec, context.now)}

    def prepare_update(self, new: KubeObject, old: KubeObject, context: WriteContext) -> KubeObject:
        """Fill in names that the client left out."""
        spec = dict(new.get("spec") or {})
        spec["names"] = old["spec"]["names"] | (spec.get("names") or {})
        spec.setdefault("conversion", {"strategy": "None"})
        return new | {"spec": spec}

    def validate_create(self, obj: KubeObject) -> Iterable[StatusCause]:
        """Return the broken rules of a definition."""
        spec = obj["spec"]
        names = spec["names"]
        for field in ("plural", "kind"):
            if not names.get(field):
                yield required(f"spec.names.{field}")
        if spec.get("scope") not in ("Namespaced", "Cluster"):
            yield required("spec.scope")
        expected = f"{names.get('plural')}.{spec.get('group')}"
        if obj["metadata"]["name"] != expected:
            yield bad_value("metadata.name", obj["metadata"]["name"], 'must be spec.names.plural+"."+spec.group')
        versions = spec.get("versions") or []
        if sum(bool(version.get("storage")) for version in versions) != 1:
            yield bad_value("spec.versions", None, "must have exactly one version marked as storage version")
        for index, version in enumerate(versions):
            if not (version.get("schema") or {}).get("openAPIV3Schema"):
                message = "Required value: schemas are required"
                yield StatusCause(f"spec.versions[{index}].schema.openAPIV3Schema", message, "FieldValueRequired")

    def validate_update(self, new: KubeObject, old: KubeObject) -> Iterable[StatusCause]:
        """Return the rules that an update breaks."""
        for field in ("group", "scope"):
            if new["spec"].get(field) != old["spec"].get(field):
                yield bad_value(f"spec.{field}", new["spec"].get(field), "field is immutable")
        yield from self.validate_create(new)


def _established(spec: dict[str, Any], now: str) -> dict[str, Any]:
    def condition(name: str, reason: str, message: str) -> dict[str, Any]:
        return {
            "type": name,
            "status": "True",
            "reason": reason,
            "message": message,
            "lastTransitionTime": now,
            "observedGeneration": 1,
        }

    stored = [version["name"] for version in spec.get("versions") or () if version.get("storage")]
    return {
        "acceptedNames": spec["names"],
        "storedVersions": stored,
        "conditions": [
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ],
    }


def kinds_of(crd: KubeObject) -> list[Kind]:
    """Return the served kinds of a definition, the storage version first."""
    versions = sorted(crd["spec"]["versions"], key=lambda version: not version.get("storage"))
    stored: Kind | None = None
    kinds: list[Kind] = []
    for version in versions:
        kind = _kind(crd["spec"], version, stored)
        stored = stored or kind
        if version.get("served", True):
            kinds.append(kind)
    return kinds


@lru_cache(maxsize=8)
def _schema(declared: bytes) -> Schema:
    """Return the tree of an openAPIV3Schema in JSON; that of a JobSet, with its Pod template, takes some 5 ms."""
    return Schema.parse(msgspec.json.decode(declared))


def _kind(spec: dict[str, Any], version: dict[str, Any], stored: Kind | None) -> Kind:
    names = spec["names"]
    schema = _schema(msgspec.json.encode(version["schema"]["openAPIV3Schema"]))
    resource = Resource(
        spec["group"], version["name"], names["plural"], names["kind"], namespaced=spec["scope"] == "Namespaced"
    )
    selectable = tuple(field["jsonPath"].lstrip(".") for field in version.get("selectableFields") or ())
    kind = Kind(
        resource,
        tuple(names.get("shortNames") or ()),
        tuple(names.get("categories") or ()),
        singular=names.get("singular", ""),
        list_kind=names.get("listKind", ""),
        has_status="status" in (version.get("subresources") or {}),
        has_generation=True,
        unconditional_update=False,
        custom=True,
        strategy=CustomStrategy(resource, schema),
        columns=custom_columns(version.get("additionalPrinterColumns") or []),
        schema=schema,
        field_labels=selectable,
        stored_as=stored,
    )
    if stored is not None:
        own, storage = resource.api_version, stored.resource.api_version
        kind.to_stored = lambda obj: obj | {"apiVersion": storage}
        kind.from_stored = lambda obj: obj | {"apiVersion": own}
    return kind
