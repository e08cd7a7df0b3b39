"""
A structural schema of a custom resource: it fills in defaults and drops unknown fields.

Source: k8s.io/apiextensions-apiserver/pkg/apiserver/schema (pruning, defaulting).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

_OBJECT_META = frozenset(("apiVersion", "kind", "metadata"))
_ABSENT: Any = object()


@dataclass(slots=True)
class Schema:
    """One node of a schema; `raw` keeps the declared keywords that only validation reads."""

    raw: dict[str, Any]
    type: str
    properties: dict[str, Schema]
    additional: Schema | None
    items: Schema | None
    preserve_unknown: bool
    embedded: bool
    default: Any = _ABSENT
    list_type: str = "atomic"
    list_keys: tuple[str, ...] = ()
    atomic_map: bool = False
    rules: list[dict[str, Any]] = field(default_factory=list)
    has_defaults: bool = False
    has_rules: bool = False
    has_keyed_lists: bool = False

    @classmethod
    def parse(cls, raw: dict[str, Any]) -> Schema:
        """Build the tree of an openAPIV3Schema."""
        additional = raw.get("additionalProperties")
        node = cls(
            raw=raw,
            type=raw.get("type", ""),
            properties={name: cls.parse(child) for name, child in (raw.get("properties") or {}).items()},
            additional=cls.parse(additional) if isinstance(additional, dict) else cls.parse({}) if additional else None,
            items=cls.parse(raw["items"]) if raw.get("items") else None,
            preserve_unknown=bool(raw.get("x-kubernetes-preserve-unknown-fields")) or additional is True,
            embedded=bool(raw.get("x-kubernetes-embedded-resource")),
            default=raw.get("default", _ABSENT),
            list_type=raw.get("x-kubernetes-list-type", "atomic"),
            list_keys=tuple(raw.get("x-kubernetes-list-map-keys") or ()),
            atomic_map=raw.get("x-kubernetes-map-type") == "atomic",
            rules=list(raw.get("x-kubernetes-validations") or ()),
        )
        children = [*node.properties.values(), *filter(None, (node.additional, node.items))]
        node.has_defaults = node.default is not _ABSENT or any(child.has_defaults for child in children)
        node.has_rules = bool(node.rules) or any(child.has_rules for child in children)
        node.has_keyed_lists = node.list_type != "atomic" or any(child.has_keyed_lists for child in children)
        return node

    @property
    def int_or_string(self) -> bool:
        """Return whether the schema accepts both a number and a string."""
        return bool(self.raw.get("x-kubernetes-int-or-string"))

    def child(self, key: str) -> Schema | None:
        """Return the schema of a field, None when the field is unknown."""
        return self.properties.get(key) or self.additional


def prune(value: Any, schema: Schema, dropped: list[str], path: str = "", *, root: bool = False) -> Any:
    """Return the value without fields the schema does not know; append their paths to `dropped`."""
    if isinstance(value, dict):
        return _prune_object(
            value, schema, dropped, path, keep=_OBJECT_META if root or schema.embedded else frozenset()
        )
    if isinstance(value, list) and schema.items is not None:
        items = [prune(item, schema.items, dropped, f"{path}[{index}]") for index, item in enumerate(value)]
        return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
    return value


def _prune_object(
    value: dict[str, Any], schema: Schema, dropped: list[str], path: str, keep: frozenset[str]
) -> dict[str, Any]:
    pruned = value
    for key, item in value.items():
        if key in keep:
            continue
        here = f"{path}.{key}" if path else key
        child = schema.child(key)
        if child is not None:
            new = prune(item, child, dropped, here)
            if new is not item:
                pruned = pruned if pruned is not value else dict(value)
                pruned[key] = new
        elif not schema.preserve_unknown:
            dropped.append(here)
            pruned = pruned if pruned is not value else dict(value)
            del pruned[key]
    return pruned


def fill_defaults(value: Any, schema: Schema) -> Any:
    """Return the value with declared defaults where fields are absent (or null and not nullable)."""
    if not schema.has_defaults:
        return value
    if isinstance(value, dict):
        return _default_object(value, schema)
    if isinstance(value, list) and schema.items is not None:
        items = [fill_defaults(item, schema.items) for item in value]
        return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
    return value


def _default_object(value: dict[str, Any], schema: Schema) -> dict[str, Any]:
    changed: dict[str, Any] = {}
    for key, child in schema.properties.items():
        item = value.get(key, _ABSENT)
        if item is None and not child.raw.get("nullable") and child.default is not _ABSENT:
            item = _ABSENT
        if item is _ABSENT:
            if child.default is _ABSENT:
                continue
            item = child.default
        new = fill_defaults(item, child)
        if new is not value.get(key, _ABSENT):
            changed[key] = new
    if schema.additional is not None:
        for key, item in value.items():
            if key not in schema.properties:
                new = fill_defaults(item, schema.additional)
                if new is not item:
                    changed[key] = new
    return value | changed if changed else value


_NESTED = frozenset((dict, list))


def drop_nulls(value: Any, schema: Schema | None) -> Any:
    """Return the value without null fields that the schema does not allow to be null, as the server drops them."""
    if isinstance(value, dict):
        changed: dict[str, Any] = {}
        for key, item in value.items():
            if item is None or type(item) in _NESTED:
                child = schema.child(key) if schema is not None else None
                if item is None:
                    if child is not None and not child.raw.get("nullable"):
                        changed[key] = _ABSENT
                elif (new := drop_nulls(item, child)) is not item:
                    changed[key] = new
        return {key: item for key, item in (value | changed).items() if item is not _ABSENT} if changed else value
    if isinstance(value, list):
        inner = schema.items if schema is not None else None
        items = [drop_nulls(item, inner) for item in value]
        return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
    return value
