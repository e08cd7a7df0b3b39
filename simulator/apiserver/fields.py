"""
Sets of field paths (FieldsV1) and the operations that server-side apply needs on them. Pure.

A set is the wire form itself: nested dictionaries with keys `f:<field>`, `k:<list item keys>` and `v:<set value>`; an
empty dictionary is a leaf. A shape says which lists have keys: from the CRD's schema, or by field name.
Source: sigs.k8s.io/structured-merge-diff.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import msgspec

from inplace.simulator.apiserver.schema import Schema
from inplace.simulator.apiserver.strategic_patch import MERGE_KEYS, MERGED_PRIMITIVES

FieldSet = dict[str, Any]
Keyed = list[tuple[str, Any]]
APPLIED_WHOLE = frozenset(("addresses", "podIPs", "hostIPs", "taints"))  # lists that only a strategic patch merges


class NamedShape:
    """The shape of built-in kinds, by field name."""

    LIST_KEYS: ClassVar[dict[str, tuple[str, ...]]] = {
        **{field: keys for field, keys in MERGE_KEYS.items() if field not in APPLIED_WHOLE},
        "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
        "ports": ("containerPort", "port", "protocol"),
    }
    ATOMIC = frozenset(
        ("selector", "nodeSelector", "labelSelector", "fieldRef", "secretKeyRef", "configMapKeyRef", "resourceFieldRef")
    )

    def __init__(self, field: str = "") -> None:
        self._field = field

    def child(self, field: str) -> NamedShape:
        """Return the shape of a field."""
        return NamedShape(field)

    def item(self) -> NamedShape:
        """Return the shape of list items: decided by the names of their own fields."""
        return NamedShape()

    def atomic(self) -> bool:
        """Return whether the field is atomic; lists are unless named above."""
        return self._field in self.ATOMIC

    def keys(self) -> tuple[str, ...]:
        """Return the list's keys."""
        return self.LIST_KEYS.get(self._field, ())

    def merges_list(self) -> bool:
        """Return whether a list of this field merges."""
        return self._field in self.LIST_KEYS or self._field in MERGED_PRIMITIVES


class SchemaShape:
    """The shape that a custom resource's schema declares; metadata as in built-in kinds."""

    def __init__(self, schema: Schema | None, *, root: bool = False) -> None:
        self._schema = schema
        self._root = root

    def child(self, field: str) -> Shape:
        """Return the shape of a field."""
        if self._root and field == "metadata":
            return NamedShape()
        return SchemaShape(self._schema.child(field) if self._schema else None)

    def item(self) -> SchemaShape:
        """Return the shape of list items."""
        return SchemaShape(self._schema.items if self._schema else None)

    def atomic(self) -> bool:
        """Return whether an object is owned as a whole."""
        return self._schema is not None and self._schema.atomic_map

    def keys(self) -> tuple[str, ...]:
        """Return the keys of a list map."""
        return self._schema.list_keys if self._schema else ()

    def merges_list(self) -> bool:
        """Return whether the list is a map or a set."""
        return self._schema is not None and self._schema.list_type in ("map", "set")


Shape = NamedShape | SchemaShape
"""How the value of a field is merged."""


def members(value: Any, shape: Shape) -> Keyed | None:
    """Return the parts of a value by path element, or None for a leaf."""
    if isinstance(value, dict) and not shape.atomic():
        return [(f"f:{key}", item) for key, item in value.items()]
    if isinstance(value, list) and shape.merges_list():
        return [(_element(item, shape.keys()), item) for item in value]
    return None


def _element(item: Any, keys: tuple[str, ...]) -> str:
    if isinstance(item, dict):
        return "k:" + msgspec.json.encode({key: item[key] for key in sorted(keys) if key in item}).decode()
    return "v:" + msgspec.json.encode(item).decode()


def inner_shape(shape: Shape, element: str) -> Shape:
    """Return the shape below a path element."""
    return shape.child(element[2:]) if element.startswith("f:") else shape.item()


def field_set(value: Any, shape: Shape) -> FieldSet:
    """Return the set of all fields of a value."""
    parts = members(value, shape)
    if not parts:
        return {}
    return {
        element: ({".": {}} if element.startswith("k:") else {}) | field_set(item, inner_shape(shape, element))
        for element, item in parts
    }


def changed(old: Any, new: Any, shape: Shape) -> FieldSet | None:
    """Return the fields of `new` that `old` lacks or has with another value; None when there is no difference."""
    if old is new or old == new:
        return None
    before, after = members(old, shape), members(new, shape)
    if after is None or before is None:
        return field_set(new, shape)
    known = dict(before)
    found: FieldSet = {}
    for element, item in after:
        if element not in known:
            below = field_set(item, inner_shape(shape, element))
            found[element] = {".": {}} | below if element.startswith("k:") else below
            continue
        deeper = changed(known[element], item, inner_shape(shape, element))
        if deeper is not None:
            found[element] = deeper
    return found or None


def union(left: FieldSet, right: FieldSet) -> FieldSet:
    """Return the fields of either set."""
    result = dict(left)
    for element, below in right.items():
        result[element] = union(result[element], below) if element in result else below
    return result


def difference(left: FieldSet, right: FieldSet) -> FieldSet:
    """Return the leaves of `left` that are not in `right`."""
    result: FieldSet = {}
    for element, below in left.items():
        other = right.get(element)
        if other is None:
            result[element] = below
        elif below:
            rest = difference(below, other)
            if rest:
                result[element] = rest
    return result


def intersection(left: FieldSet, right: FieldSet) -> FieldSet:
    """Return the leaves in both sets; a leaf that is an inner field on the other side counts as its whole subtree."""
    result: FieldSet = {}
    for element, below in left.items():
        if element not in right or element == ".":
            continue
        other = right[element]
        if not below or not other:
            result[element] = {}
            continue
        common = intersection(below, other)
        if common:
            result[element] = common
    return result


def leaves(fields: FieldSet, prefix: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path of each leaf."""
    for element, below in fields.items():
        if element == ".":
            continue
        if any(key != "." for key in below):
            yield from leaves(below, (*prefix, element))
        else:
            yield (*prefix, element)


def merge(live: Any, applied: Any, shape: Shape) -> Any:
    """Return the live value with the applied configuration merged in."""
    if members(applied, shape) is None or members(live, shape) is None:
        return applied
    if isinstance(applied, dict) and isinstance(live, dict):
        result = dict(live)
        for key, item in applied.items():
            result[key] = merge(live[key], item, shape.child(key)) if key in live else item
        return result
    if not isinstance(live, list):
        return applied
    wanted = dict(members(applied, shape) or ())
    merged = []
    for element, item in members(live, shape) or ():
        merged.append(merge(item, wanted.pop(element), shape.item()) if element in wanted else item)
    return [*merged, *wanted.values()]


def without(value: Any, fields: FieldSet, shape: Shape) -> Any:
    """Return the value without the leaves of a set, and without list items whose keys are in it."""
    if not fields:
        return value
    if isinstance(value, dict):
        result = dict(value)
        for key in value:
            below = fields.get(f"f:{key}")
            if below is None:
                continue
            if not below:
                del result[key]
                continue
            rest = without(value[key], below, shape.child(key))
            if rest in ({}, []):
                del result[key]  # all fields of this item belonged to this manager only
            else:
                result[key] = rest
        return result
    if isinstance(value, list):
        kept = []
        for element, item in members(value, shape) or ():
            below = fields.get(element)
            if below is None:
                kept.append(item)
            elif below and "." not in below:
                kept.append(without(item, below, shape.item()))
        return kept
    return value
