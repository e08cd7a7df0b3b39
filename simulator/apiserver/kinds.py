"""
The kinds that the server stores: one `Kind` per served resource, in a registry that CRDs extend at run time.

A kind is data; the rules of a kind (defaults, validation, what an update may change) are its `Strategy`.
"""

# ruff: noqa: ARG002 -- every strategy has the same signatures and uses the arguments that it needs

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from inplace.common.kube.resources import KubeObject, Resource
from inplace.simulator.apiserver.status import StatusCause

if TYPE_CHECKING:
    from inplace.simulator.apiserver.schema import Schema


@dataclass(frozen=True, slots=True)
class WriteContext:
    """The facts about a write, beside the objects, that a strategy may use."""

    now: str
    strict: bool


class Strategy:
    """The rules of one kind. The default accepts everything: it serves kinds that this server does not interpret.

    Objects are never modified in place: each method returns a new outer dictionary when it changes something.
    """

    def decode(self, obj: KubeObject, *, strict: bool) -> KubeObject:
        """Return a client's object in the form that the kind knows; `strict` refuses unknown fields with 400."""
        return obj

    def prepare_create(self, obj: KubeObject, context: WriteContext) -> KubeObject:
        """Return a new object as it will be stored (e.g. without status, with generated labels)."""
        return obj

    def prepare_update(self, new: KubeObject, old: KubeObject, context: WriteContext) -> KubeObject:
        """Return an update as it will be stored (e.g. fields that clients cannot change put back)."""
        return new

    def validate_create(self, obj: KubeObject) -> Iterable[StatusCause]:
        """Return the rules that a new object breaks."""
        return ()

    def validate_update(self, new: KubeObject, old: KubeObject) -> Iterable[StatusCause]:
        """Return the rules that an update of anything but the status breaks."""
        return ()

    def validate_status(self, new: KubeObject, old: KubeObject) -> Iterable[StatusCause]:
        """Return the rules that a write to the status subresource breaks."""
        return ()


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its definition on the wire and how to compute a cell (from the object and the time of day)."""

    name: str
    cell: Callable[[KubeObject, float], Any]
    type: str = "string"
    format: str = ""
    description: str = ""
    priority: int = 0

    def definition(self) -> dict[str, Any]:
        """Return the column as a TableColumnDefinition."""
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        }


@dataclass(slots=True)
class Kind:
    """One served resource.

    Args:
        has_status: the status is a subresource, so neither write path changes the other's part.
        has_generation: metadata.generation counts changes outside metadata and status.
        graceful: deletion waits for the kubelet (Pods).
        returns_deleted: DELETE answers with the object instead of a Status, as some built-in kinds do.
        unconditional_update: PUT without a resourceVersion overwrites.
        create_on_update: PUT of a missing object creates it.
        orphans_by_default: DELETE without a propagation policy leaves the dependents alone.
        stored_as: the kind in whose form objects are kept, when this is another version of it.
        schema: of a custom resource.
    """

    resource: Resource
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    singular: str = ""
    has_status: bool = False
    has_generation: bool = False
    graceful: bool = False
    returns_deleted: bool = False
    unconditional_update: bool = True
    create_on_update: bool = False
    orphans_by_default: bool = False
    custom: bool = False
    strategy: Strategy = field(default_factory=Strategy)
    columns: tuple[Column, ...] = ()
    schema: Schema | None = None
    stored_as: Kind | None = None
    to_stored: Callable[[KubeObject], KubeObject] | None = None
    from_stored: Callable[[KubeObject], KubeObject] | None = None
    field_labels: tuple[str, ...] = ()
    extra_subresources: tuple[str, ...] = ()
    list_kind: str = ""

    @property
    def storage(self) -> Kind:
        """Return the kind in whose form objects are kept."""
        return self.stored_as or self

    @property
    def storage_key(self) -> tuple[str, str]:
        """Return the key of this kind's collection in the store: group and plural."""
        resource = self.storage.resource
        return resource.group, resource.plural

    @property
    def plural(self) -> str:
        """Return the resource's name in URLs."""
        return self.resource.plural

    @property
    def group(self) -> str:
        """Return the API group, "" for core."""
        return self.resource.group

    @property
    def kind_of_list(self) -> str:
        """Return the kind of a collection."""
        return self.list_kind or f"{self.resource.kind}List"

    def present(self, obj: KubeObject) -> KubeObject:
        """Return a stored object in this kind's version."""
        return self.from_stored(obj) if self.from_stored is not None else obj


class Registry:
    """Finds kinds by URL and by apiVersion + kind."""

    def __init__(self) -> None:
        self._by_url: dict[tuple[str, str, str], Kind] = {}
        self._by_gvk: dict[tuple[str, str], Kind] = {}
        self.generation = 0  # counts changes of the registry: caches that derive from it compare the count

    def add(self, kind: Kind) -> None:
        """Serve a kind."""
        resource = kind.resource
        self._by_url[resource.group, resource.version, resource.plural] = kind
        self._by_gvk[resource.api_version, resource.kind] = kind
        self.generation += 1

    def remove(self, kind: Kind) -> None:
        """Stop serving a kind."""
        resource = kind.resource
        self._by_url.pop((resource.group, resource.version, resource.plural), None)
        self._by_gvk.pop((resource.api_version, resource.kind), None)
        self.generation += 1

    def by_url(self, group: str, version: str, plural: str) -> Kind | None:
        """Return the kind served at this URL."""
        return self._by_url.get((group, version, plural))

    def by_object(self, api_version: str, kind: str) -> Kind | None:
        """Return the kind of an object."""
        return self._by_gvk.get((api_version, kind))

    def all(self) -> list[Kind]:
        """Return every served kind."""
        return list(self._by_url.values())


def with_metadata(obj: KubeObject, **changes: Any) -> KubeObject:
    """Return a copy of the object with metadata fields set; None removes a field."""
    meta = obj["metadata"] | changes
    for key, value in changes.items():
        if value is None:
            del meta[key]
    return obj | {"metadata": meta}
