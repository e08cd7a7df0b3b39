"""
Create and change objects: the one path that every write takes to the store.

Guarantees: validation and admission happen BEFORE anything is stored; a write that changes nothing makes no new
resourceVersion and no event; a dry run goes through everything but the store. There is no `await` between reading
the old object and storing the new one, so conflicts only come from clients' own resourceVersions.
Source: k8s.io/apiserver/pkg/registry/generic/registry/store.go.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import Any

from inplace.common.kube.clock import Clock
from inplace.common.kube.resources import KubeObject
from inplace.simulator.apiserver import metadata, ownership, status
from inplace.simulator.apiserver.admission_policies import Attempt, refusal
from inplace.simulator.apiserver.kinds import Kind, WriteContext
from inplace.simulator.apiserver.pods import with_priority
from inplace.simulator.apiserver.status import StatusCause
from inplace.simulator.apiserver.store import CollectionKey, ObjectKey, Store

GENERATE_NAME_ATTEMPTS_MAX = 8
"""Source: store.go maxNameGenerationCreateAttempts."""

NAMESPACES_KEY: CollectionKey = ("", "namespaces")


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options of a client's write."""

    user: str = "admin"
    manager: str = "unknown"
    dry_run: bool = False
    strict: bool = False
    force: bool = False
    subresource: str = ""
    replacing: bool = False


class Writes:
    """Puts objects into the store by the rules of their kinds."""

    def __init__(self, store: Store, clock: Clock, rng: Random) -> None:
        self._store = store
        self._clock = clock
        self._rng = rng
        self._book = ownership.OwnerBook()
        store.listen(lambda key, event: self._forget(key, event.type, event.key))

    def now(self) -> str:
        """Return the time of day as objects carry it."""
        return metadata.timestamp(self._clock.wall_s())

    def create(
        self,
        kind: Kind,
        namespace: str,
        body: KubeObject,
        options: WriteOptions,
        owners: ownership.Owners | None = None,
    ) -> KubeObject:
        """Store a new object and return it; `owners` are what a server-side apply computed, None for a plain create."""
        obj = self._decoded(kind, namespace, body, options)
        meta = obj["metadata"]
        self._check_namespace(kind, namespace, meta.get("name") or "")
        obj = obj | {"metadata": self._new_metadata(kind, namespace, meta)}
        if kind.has_status and "status" in obj:
            obj = {key: value for key, value in obj.items() if key != "status"}
        obj = kind.storage.strategy.prepare_create(obj, WriteContext(self.now(), options.strict))
        if kind.plural == "pods" and not kind.group:
            obj = with_priority(self._store, obj)
        self._refuse_if(kind, obj["metadata"], self._create_causes(kind, obj))
        self._refuse_by_policy(Attempt(kind, obj, None, options.user))
        object_key = (namespace, obj["metadata"]["name"])
        if meta.get("resourceVersion") and not options.dry_run:  # the storage says so, which a dry run does not reach
            raise status.StatusError(500, "", "resourceVersion should not be set on objects to be created")
        if object_key in self._store.collection(kind.storage_key).objects:
            raise status.already_exists(kind.plural, kind.group, object_key[1])
        writer = self._writer(kind, options)
        owners = ownership.after_create(obj, writer) if owners is None else owners
        obj = self._with_managed_fields(kind, obj, owners)
        if options.dry_run:
            return obj
        stored = self._store.put(kind.storage_key, obj)
        self._book.settle((kind.storage_key, object_key), owners)
        return stored

    def owners(self, kind: Kind, object_key: ObjectKey) -> ownership.Owners:
        """Return the owners of a stored object's fields."""
        return self._book.owners((kind.storage_key, object_key), ownership.shape_of(kind.storage))

    def replace(
        self,
        kind: Kind,
        old: KubeObject,
        new: KubeObject,
        options: WriteOptions,
        owners: ownership.Owners | None = None,
    ) -> KubeObject:
        """Store a changed object and return it; the unchanged one when nothing changed.

        `old` is the stored object that the change was computed from, `new` the whole object as the client wants it,
        `owners` as in `create`.
        """
        meta, before = new["metadata"], old["metadata"]
        if meta is not before:
            metadata.check_types(meta)
            self._check_preconditions(kind, meta, before, replacing=options.replacing)
            new = {**new, "metadata": metadata.kept(meta, before)}
        new = self._updated(kind, old, new, options)
        if new == old and owners is None:
            return old
        self._refuse_if(kind, before, self._update_causes(kind, new, old, options.subresource))
        self._refuse_by_policy(Attempt(kind, new, old, options.user, options.subresource))
        new = self._with_generation(kind, new, old)
        object_key = (before.get("namespace") or "", before["name"])
        book_key = kind.storage_key, object_key
        is_plain = owners is None and not self._book.is_applied(book_key)
        if not is_plain:
            held = self.owners(kind, object_key)
            if owners is None:
                shape = ownership.shape_of(kind.storage)
                owners = ownership.after_update(held, old, new, self._writer(kind, options), shape)
            new = self._with_managed_fields(kind, new, owners)
            if new == old and _without_times(owners) == _without_times(held):
                return old
        if options.dry_run:
            return new
        if before.get("deletionTimestamp") and not is_kept(new):
            return self._store.remove(kind.storage_key, new)
        stored = self._store.put(kind.storage_key, new)
        if owners is None:
            update = ownership.PlainUpdate(old, new, self._writer(kind, options))
            self._book.note(book_key, update, ownership.shape_of(kind.storage))
        else:
            self._book.settle(book_key, owners)
        return stored

    def put_trusted(self, kind: Kind, old: KubeObject, new: KubeObject, options: WriteOptions) -> KubeObject:
        """Store a change that the server itself makes, without the rules for clients."""
        if options.dry_run:
            return new
        new = self._with_generation(kind, _shared(new, old), old)
        return self._store.put(kind.storage_key, new)

    def _decoded(self, kind: Kind, namespace: str, body: KubeObject, options: WriteOptions) -> KubeObject:
        check_identity(kind, body)
        meta = body.get("metadata")
        metadata.check_types({} if meta is None else meta)
        identity: KubeObject = {"apiVersion": kind.resource.api_version, "kind": kind.resource.kind}
        obj = identity | body | {"metadata": dict(meta or {})}
        given = obj["metadata"].get("namespace") or ""
        if given and given != namespace:
            raise namespace_mismatch()
        if kind.to_stored is not None:
            obj = kind.to_stored(obj)
        return kind.strategy.decode(obj, strict=options.strict)

    def _check_namespace(self, kind: Kind, namespace: str, name: str) -> None:
        if not kind.resource.namespaced:
            return
        found = self._store.get(NAMESPACES_KEY, "", namespace)
        if found is None:
            raise status.not_found("namespaces", "", namespace)
        if found["metadata"].get("deletionTimestamp"):
            raise status.forbidden(
                f'{status.qualified(kind.plural, kind.group)} "{name}" is forbidden: unable to create new content in '
                f"namespace {namespace} because it is being terminated",
                {"name": name, "kind": kind.plural, "causes": [{"reason": "NamespaceTerminating"}]},
            )

    def _new_metadata(self, kind: Kind, namespace: str, given: dict[str, Any]) -> dict[str, Any]:
        meta = {key: value for key, value in given.items() if value is not None}
        for field in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "generation", "managedFields"):
            meta.pop(field, None)
        if not meta.get("name") and meta.get("generateName"):
            objects = self._store.collection(kind.storage_key).objects
            for _ in range(GENERATE_NAME_ATTEMPTS_MAX):
                meta["name"] = metadata.generated_name(meta["generateName"], self._rng)
                if (namespace, meta["name"]) not in objects:
                    break
        if namespace:
            meta["namespace"] = namespace
        meta["uid"] = str(uuid.UUID(int=self._rng.getrandbits(128), version=4))
        meta["creationTimestamp"] = self.now()
        if kind.storage.has_generation:
            meta["generation"] = 1
        return meta

    def _create_causes(self, kind: Kind, obj: KubeObject) -> Iterable[StatusCause]:
        meta = obj["metadata"]
        yield from metadata.name_causes(kind.plural, meta)
        yield from metadata.map_causes(meta)
        yield from metadata.owner_causes(meta)
        yield from kind.storage.strategy.validate_create(obj)

    def _check_preconditions(
        self, kind: Kind, meta: dict[str, Any], before: dict[str, Any], *, replacing: bool
    ) -> None:
        name = before["name"]
        uid = meta.get("uid")
        if uid and uid != before["uid"]:
            if not replacing:  # a PATCH with another uid breaks the rule that the uid never changes: 422, not 409
                cause = status.bad_value("metadata.uid", uid, "field is immutable")
                raise status.invalid(kind.resource.kind, kind.group, name, [cause])
            key = "/".join(("/registry", *kind.storage_key, *filter(None, (before.get("namespace"), name))))
            why = (
                f"StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: "
                f"Precondition failed: UID in precondition: {uid}, UID in object meta: {before['uid']}"
            )
            raise status.conflict(kind.plural, kind.group, name, why)
        version = meta.get("resourceVersion")
        if version and version != before["resourceVersion"]:
            raise status.conflict(kind.plural, kind.group, name, status.MODIFIED_SINCE)

    def _updated(self, kind: Kind, old: KubeObject, new: KubeObject, options: WriteOptions) -> KubeObject:
        """Return the new object; a write to one subresource leaves the other subresource's part as it was."""
        storage = kind.storage
        new = storage.strategy.decode(new, strict=options.strict)
        if options.subresource == "status":
            changed = {"status": new["status"]} if "status" in new else {}
            kept = {key: value for key, value in old.items() if key != "status"}
            meta = old["metadata"] if storage.custom else _status_metadata(new["metadata"], old["metadata"])
            new = {**kept, "metadata": meta, **changed}
        elif storage.has_status:
            new = {key: value for key, value in new.items() if key != "status"}
            if "status" in old:
                new["status"] = old["status"]
        new = _shared(new, old)
        if options.subresource:
            return new
        return _shared(storage.strategy.prepare_update(new, old, WriteContext(self.now(), options.strict)), old)

    def _update_causes(self, kind: Kind, new: KubeObject, old: KubeObject, subresource: str) -> Iterable[StatusCause]:
        if new["metadata"] is not old["metadata"]:
            yield from metadata.update_causes(new, old)
        strategy = kind.storage.strategy
        yield from strategy.validate_status(new, old) if subresource else strategy.validate_update(new, old)

    def _with_generation(self, kind: Kind, new: KubeObject, old: KubeObject) -> KubeObject:
        storage = kind.storage
        if not storage.has_generation:
            return new
        ignored = ("metadata", "status") if storage.has_status else ("metadata",)
        for key in {*new, *old}:
            if key not in ignored and new.get(key) is not old.get(key):
                return {**new, "metadata": {**new["metadata"], "generation": old["metadata"].get("generation", 0) + 1}}
        return new

    def _with_managed_fields(self, kind: Kind, obj: KubeObject, owners: ownership.Owners) -> KubeObject:
        if not any(owner.operation == "Apply" for owner in owners):
            return obj
        shape = ownership.shape_of(kind.storage)
        entries = [owner.entry(shape) for owner in owners]
        return {**obj, "metadata": {**obj["metadata"], "managedFields": entries}}

    def _writer(self, kind: Kind, options: WriteOptions) -> ownership.Writer:
        api_version = kind.resource.api_version
        return ownership.Writer(options.manager, options.subresource, api_version, self.now())

    def _refuse_if(self, kind: Kind, meta: dict[str, Any], causes: Iterable[StatusCause]) -> None:
        found = list(causes)
        if found:
            raise status.invalid(kind.resource.kind, kind.group, meta.get("name") or "", found)

    def _refuse_by_policy(self, attempt: Attempt) -> None:
        why = refusal(self._store, attempt)
        if why is not None:
            raise status.denied(attempt.kind.plural, attempt.kind.group, attempt.new["metadata"]["name"], why)

    def _forget(self, key: CollectionKey, event_type: str, object_key: ObjectKey) -> None:
        if event_type == "DELETED":
            self._book.forget((key, object_key))


def is_kept(obj: KubeObject) -> bool:
    """Return whether an object that is being deleted still has a reason to stay."""
    meta = obj["metadata"]
    if meta.get("finalizers") or meta.get("deletionGracePeriodSeconds"):
        return True
    return obj["kind"] == "Namespace" and bool((obj.get("spec") or {}).get("finalizers"))


def check_identity(kind: Kind, body: KubeObject) -> None:
    """Raise 400 (or 422 for a custom kind's kind) when a body is not an object of this kind."""
    resource = kind.resource
    named, version = body.get("kind"), body.get("apiVersion")
    if not named and not version and not kind.custom:
        return
    if not named:
        raise status.bad_request(
            f"the object provided is unrecognized (must be of type {resource.kind}): Object 'Kind' is missing"
        )
    if kind.custom and version == resource.api_version and named != resource.kind:
        cause = status.bad_value("kind", named, f"must be {resource.kind}")
        name = (body.get("metadata") or {}).get("name") or ""
        raise status.invalid(str(named), kind.group, name, [cause])
    if not kind.custom and named != resource.kind:
        raise status.bad_request(
            f'{named} in version "{resource.version}" cannot be handled as a {resource.kind}: no kind "{named}" is '
            f'registered for version "{version}"'
        )
    if version != resource.api_version:
        raise status.bad_request(
            f"the API version in the data ({version}) does not match the expected API version ({resource.api_version})"
        )


def name_mismatch(name: str, on_url: str) -> status.StatusError:
    """Return the 400 for an object whose name is not the URL's."""
    return status.bad_request(f"the name of the object ({name}) does not match the name on the URL ({on_url})")


def namespace_mismatch() -> status.StatusError:
    """Return the 400 for an object whose namespace is not the URL's."""
    return status.bad_request("the namespace of the provided object does not match the namespace sent on the request")


def _shared(new: KubeObject, old: KubeObject) -> KubeObject:
    """Return the new object with equal parts taken from the old one, so that `is` finds the changed parts."""
    result = new
    for key, value in new.items():
        before = old.get(key)
        if value is not before and value == before:
            result = result if result is not new else dict(new)
            result[key] = before
    return result


def _status_metadata(new: dict[str, Any], old: dict[str, Any]) -> dict[str, Any]:
    """Return the metadata after a built-in kind's status write: labels and annotations may change, owners may not."""
    kept = dict(new)
    for field in ("ownerReferences", "deletionTimestamp"):
        if field in old:
            kept[field] = old[field]
        else:
            kept.pop(field, None)
    return kept


def _without_times(owners: ownership.Owners) -> list[tuple[Any, ...]]:
    return [(o.manager, o.operation, o.subresource, o.fields, o.lost) for o in owners]
