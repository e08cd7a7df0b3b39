"""
Remember which manager owns which fields, and decide server-side apply with it.

The fields of a plain create are computed only when an apply needs them, so a write costs only its own difference.
`metadata.managedFields` is shown once a client has applied the object; before that no client here reads it.
Source: k8s.io/apimachinery/pkg/util/managedfields.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from inplace.common.kube.resources import KubeObject
from inplace.simulator.apiserver.fields import (
    FieldSet,
    NamedShape,
    SchemaShape,
    Shape,
    changed,
    difference,
    field_set,
    intersection,
    leaves,
    merge,
    union,
    without,
)
from inplace.simulator.apiserver.kinds import Kind
from inplace.simulator.apiserver.status import StatusError

_SERVER_OWNED = frozenset(
    (
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "generateName",
        "generation",
        "managedFields",
        "name",
        "namespace",
        "resourceVersion",
        "selfLink",
        "uid",
    )
)

PENDING_UPDATES_MAX = 32
"""Plain updates of one object that wait to be settled; each keeps its old and new version alive."""


@dataclass(frozen=True, slots=True)
class Owner:
    """One manager and its fields.

    Args:
        fields: None means all fields of `created`, computed on demand, without `lost`.
    """

    manager: str
    operation: str
    subresource: str
    api_version: str
    time: str
    fields: FieldSet | None
    created: KubeObject | None = None
    lost: FieldSet | None = None

    def resolved(self, shape: Shape) -> FieldSet:
        """Return the fields."""
        if self.fields is not None:
            return self.fields
        assert self.created is not None
        return difference(field_set(own_fields(self.created), shape), self.lost or {})

    def losing(self, taken: FieldSet) -> Owner:
        """Return this owner without the fields that another manager took."""
        if self.fields is None:
            return replace(self, lost=union(self.lost or {}, taken))
        return replace(self, fields=difference(self.fields, taken))

    def entry(self, shape: Shape) -> dict[str, Any]:
        """Return the wire form."""
        entry = {
            "manager": self.manager,
            "operation": self.operation,
            "apiVersion": self.api_version,
            "time": self.time,
            "fieldsType": "FieldsV1",
            "fieldsV1": self.resolved(shape),
        }
        return entry | {"subresource": self.subresource} if self.subresource else entry


Owners = tuple[Owner, ...]


@dataclass(frozen=True, slots=True)
class Writer:
    """The manager of a write, its operation and its subresource."""

    manager: str
    subresource: str
    api_version: str
    time: str


def own_fields(obj: KubeObject) -> KubeObject:
    """Return the part of an object whose fields managers can own."""
    meta = {key: value for key, value in (obj.get("metadata") or {}).items() if key not in _SERVER_OWNED}
    rest = {key: value for key, value in obj.items() if key not in ("apiVersion", "kind", "metadata")}
    return {"metadata": meta, **rest} if meta else rest


def shape_of(kind: Kind) -> Shape:
    """Return the shape of a kind's objects."""
    return SchemaShape(kind.schema, root=True) if kind.schema is not None else NamedShape()


def after_create(obj: KubeObject, writer: Writer) -> Owners:
    """Return the owners of an object that a plain create made."""
    return (Owner(writer.manager, "Update", writer.subresource, writer.api_version, writer.time, None, created=obj),)


def after_update(owners: Owners, old: KubeObject, new: KubeObject, writer: Writer, shape: Shape) -> Owners:
    """Return the owners after a plain update: the writer becomes the owner of the fields that it changed."""
    taken = changed(own_fields(old), own_fields(new), shape)
    if not taken:
        return owners
    result = []
    found = False
    for owner in owners:
        if (owner.manager, owner.operation, owner.subresource) == (writer.manager, "Update", writer.subresource):
            found = True
            result.append(replace(owner, time=writer.time, fields=union(owner.resolved(shape), taken)))
            continue
        owner = owner.losing(taken)
        if owner.fields != {}:
            result.append(owner)
    if not found:
        result.append(Owner(writer.manager, "Update", writer.subresource, writer.api_version, writer.time, taken))
    return tuple(result)


@dataclass(frozen=True, slots=True)
class PlainUpdate:
    """A plain update; the fields that it takes over are computed when the owners are asked for."""

    old: KubeObject
    new: KubeObject
    writer: Writer


class OwnerBook:
    """Keep the owners of every stored object; plain updates are remembered and settled when an owner is asked for.

    A simulated Pod is written a dozen times and never applied, so most updates are never settled.
    """

    def __init__(self) -> None:
        self._settled: dict[Any, Owners] = {}
        self._pending: dict[Any, list[PlainUpdate]] = {}

    def owners(self, key: Any, shape: Shape) -> Owners:
        """Return the owners of an object's fields."""
        for update in self._pending.pop(key, ()):
            self._settled[key] = after_update(self._settled.get(key, ()), update.old, update.new, update.writer, shape)
        return self._settled.get(key, ())

    def is_applied(self, key: Any) -> bool:
        """Return whether a client has applied the object: then its managedFields are shown."""
        return any(owner.operation == "Apply" for owner in self._settled.get(key, ()))

    def settle(self, key: Any, owners: Owners) -> None:
        """Set the owners of an object."""
        self._pending.pop(key, None)
        self._settled[key] = owners

    def note(self, key: Any, update: PlainUpdate, shape: Shape) -> None:
        """Remember a plain update of an object that no client has applied."""
        pending = self._pending.setdefault(key, [])
        pending.append(update)
        if len(pending) >= PENDING_UPDATES_MAX:
            self.owners(key, shape)

    def forget(self, key: Any) -> None:
        """Forget the owners of a deleted object."""
        self._settled.pop(key, None)
        self._pending.pop(key, None)


def apply(
    live: KubeObject | None, config: KubeObject, owners: Owners, writer: Writer, shape: Shape, *, force: bool
) -> tuple[KubeObject, Owners]:
    """Return the object and owners after a server-side apply.

    Raises:
        StatusError: 409, another manager owns a field that the configuration would change.
    """
    wanted = own_fields(config)
    applied = field_set(wanted, shape)
    identity = (writer.manager, "Apply", writer.subresource)
    mine = next((o for o in owners if (o.manager, o.operation, o.subresource) == identity), None)
    others = tuple(owner for owner in owners if owner is not mine)
    before = own_fields(live) if live is not None else {}
    merged = merge(before, wanted, shape)
    others = _take(others, changed(before, merged, shape) or {}, shape, force=force)
    if mine is not None:
        dropped = difference(mine.resolved(shape), applied)
        for owner in others:
            dropped = difference(dropped, owner.resolved(shape))
        merged = without(merged, dropped, shape)
    owner = Owner(writer.manager, "Apply", writer.subresource, writer.api_version, writer.time, applied)
    if mine is not None and mine.fields == applied:
        owner = mine
    return _assembled(live, config, merged), (*others, owner)


def _take(others: Owners, fields: FieldSet, shape: Shape, *, force: bool) -> Owners:
    conflicts = [(owner, intersection(fields, owner.resolved(shape))) for owner in others]
    disputed = [(owner, common) for owner, common in conflicts if common]
    if disputed and not force:
        raise _conflict(disputed)
    kept = (owner.losing(common) if common else owner for owner, common in conflicts)
    return tuple(owner for owner in kept if owner.fields != {})


def _assembled(live: KubeObject | None, config: KubeObject, merged: KubeObject) -> KubeObject:
    """Return the merged fields with the parts that have no owner."""
    base = live if live is not None else config
    meta = {key: value for key, value in base["metadata"].items() if key in _SERVER_OWNED and key != "managedFields"}
    for key in ("uid", "resourceVersion"):
        if key in config["metadata"]:
            meta[key] = config["metadata"][key]
    identity = {"apiVersion": config["apiVersion"], "kind": config["kind"]}
    return {**identity, **merged, "metadata": {**meta, **merged.get("metadata", {})}}


def _conflict(disputed: list[tuple[Owner, FieldSet]]) -> StatusError:
    causes = []
    by_owner = []
    for owner, common in disputed:
        name = f'conflict with "{owner.manager}"'
        if owner.subresource:
            name += f' with subresource "{owner.subresource}"'
        if owner.operation == "Update":
            name += f" using {owner.api_version}"
        paths = ["".join(_shown(element) for element in path) for path in leaves(common)]
        causes += [{"reason": "FieldManagerConflict", "message": name, "field": path} for path in paths]
        by_owner.append(f"{name}: {paths[0]}" if len(paths) == 1 else f"{name}:\n" + "\n".join(f"- {p}" for p in paths))
    count = len(causes)
    words = "conflict" if count == 1 else "conflicts"
    message = f"Apply failed with {count} {words}: {by_owner[0]}"
    if len(by_owner) > 1:
        message = f"Apply failed with {count} {words}: " + "\n".join(by_owner)
    return StatusError(409, "Conflict", message, details={"causes": causes})


def _shown(element: str) -> str:
    if element.startswith("f:"):
        return f".{element[2:]}"
    inner = element[2:]
    if inner.startswith("{"):
        inner = inner[1:-1].replace('":', "=").replace(',"', ",").lstrip('"')
    return f"[{inner}]"
