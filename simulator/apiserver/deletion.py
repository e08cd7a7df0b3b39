"""
Delete objects: at once, or mark them until finalizers and kubelet are done.

Source: k8s.io/apiserver/pkg/registry/rest/delete.go, .../generic/registry/store.go, pkg/registry/core/pod/strategy.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from inplace.common.kube.clock import Clock
from inplace.common.kube.resources import KubeObject
from inplace.simulator.apiserver import status
from inplace.simulator.apiserver.kinds import Kind, with_metadata
from inplace.simulator.apiserver.metadata import timestamp
from inplace.simulator.apiserver.store import Store
from inplace.simulator.apiserver.writes import is_kept

ORPHAN = "orphan"
FOREGROUND = "foregroundDeletion"
POLICIES = ("Background", "Foreground", "Orphan")

_GRACE_S = 30
_FINISHED = ("Failed", "Succeeded")


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """The options of a client's DELETE."""

    propagation: str | None = None
    grace_s: int | None = None
    uid: str | None = None
    resource_version: str | None = None
    dry_run: bool = False

    @classmethod
    def parse(cls, body: Any, query: Mapping[str, str]) -> DeleteOptions:
        """Read DeleteOptions from a body (which wins) or the query."""
        if body is not None and not isinstance(body, dict):
            raise status.bad_request("expected DeleteOptions")
        options = body or {}
        if options.get("kind") not in (None, "", "DeleteOptions"):
            raise status.bad_request(f"decoded object cannot be converted to DeleteOptions: {options.get('kind')}")
        preconditions = options.get("preconditions") or {}
        propagation = options.get("propagationPolicy") or query.get("propagationPolicy")
        if propagation is None and "orphanDependents" in options:
            propagation = "Orphan" if options["orphanDependents"] else "Background"
        if propagation is not None and propagation not in POLICIES:
            cause = status.not_supported("propagationPolicy", propagation, (*POLICIES, "nil"))
            raise status.invalid("DeleteOptions", "meta.k8s.io", "", [cause])
        grace = options.get("gracePeriodSeconds")
        if grace is None and query.get("gracePeriodSeconds", "").isdigit():
            grace = int(query["gracePeriodSeconds"])
        return cls(
            propagation,
            grace,
            preconditions.get("uid"),
            preconditions.get("resourceVersion"),
            "All" in (options.get("dryRun") or ()) or query.get("dryRun") == "All",
        )


class Deletions:
    """Deletes objects from the store."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def delete(self, kind: Kind, obj: KubeObject, options: DeleteOptions) -> tuple[KubeObject, bool]:
        """Delete an object or mark it; return its last state and whether it is gone."""
        self.check(kind, obj, options)
        marked = self._marked(kind, obj, options)
        if options.dry_run:
            return marked, not is_kept(marked)
        if is_kept(marked):
            if marked is obj:
                return obj, False
            return self._store.put(kind.storage_key, marked), False
        return self._store.remove(kind.storage_key, marked), True

    def check(self, kind: Kind, obj: KubeObject, options: DeleteOptions) -> None:
        """Refuse options whose preconditions the object does not meet."""
        meta = obj["metadata"]
        for wanted, actual, word, how in (
            (options.uid, meta["uid"], "UID", "deleted and then recreated"),
            (options.resource_version, meta["resourceVersion"], "ResourceVersion", "modified"),
        ):
            if wanted is not None and wanted != actual:
                why = (
                    f"the {word} in the precondition ({wanted}) does not match the {word} in record ({actual}). "
                    f"The object might have been {how}"
                )
                raise status.conflict(kind.resource.kind, kind.group, meta["name"], why)

    def _marked(self, kind: Kind, obj: KubeObject, options: DeleteOptions) -> KubeObject:
        """Return the object as it looks while it is being deleted."""
        finalizers = _finalizers(kind, obj, options)
        meta = obj["metadata"]
        changes: dict[str, Any] = {}
        if finalizers != (meta.get("finalizers") or []):
            changes["finalizers"] = finalizers or None
        grace_s = _grace_s(obj, options) if kind.graceful else 0
        if not meta.get("deletionTimestamp"):
            changes |= self._mark(meta, grace_s)
        elif grace_s < (meta.get("deletionGracePeriodSeconds") or 0) and (options.grace_s is not None or not grace_s):
            changes |= self._mark(meta, grace_s, began=False)
        if not changes:
            return obj
        marked = with_metadata(obj, **changes)
        if kind.plural == "namespaces":
            marked = marked | {"status": (marked.get("status") or {}) | {"phase": "Terminating"}}
        return marked

    def _mark(self, meta: dict[str, Any], grace_s: int, *, began: bool = True) -> dict[str, Any]:
        at = timestamp(self._clock.wall_s() + grace_s)
        changes: dict[str, Any] = {"deletionTimestamp": at, "deletionGracePeriodSeconds": grace_s}
        if began and meta.get("generation"):
            changes["generation"] = meta["generation"] + 1
        return changes


def _finalizers(kind: Kind, obj: KubeObject, options: DeleteOptions) -> list[str]:
    held = list(obj["metadata"].get("finalizers") or ())
    policy = options.propagation
    if policy is None:
        if ORPHAN in held or FOREGROUND in held:
            return held
        policy = "Orphan" if kind.orphans_by_default else "Background"
    kept = [finalizer for finalizer in held if finalizer not in (ORPHAN, FOREGROUND)]
    if policy == "Orphan":
        return [*kept, ORPHAN]
    return [*kept, FOREGROUND] if policy == "Foreground" else kept


def _grace_s(pod: KubeObject, options: DeleteOptions) -> int:
    """Return how long the kubelet may take; a Pod without a kubelet or without containers needs no time."""
    spec = pod.get("spec") or {}
    if not spec.get("nodeName") or (pod.get("status") or {}).get("phase") in _FINISHED:
        return 0
    if options.grace_s is not None:
        return options.grace_s
    wanted = spec.get("terminationGracePeriodSeconds")
    return _GRACE_S if wanted is None else max(int(wanted), 1) if wanted < 0 else int(wanted)
