"""
The rules of ObjectMeta that every kind shares: names, labels, annotations, what an update cannot change.

Source: k8s.io/apimachinery/pkg/api/validation/objectmeta.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from random import Random
from typing import Any

from inplace.common.kube.resources import KubeObject
from inplace.simulator.apiserver.formats import annotation_key, dns_label, label_key, label_value, subdomain
from inplace.simulator.apiserver.status import StatusCause, StatusError, bad_request, bad_value, required

SECONDS_REMEMBERED = 256  # formatting a time costs more than the merge of a small PATCH
NAME_CHARACTERS_MAX = 253
LABEL_CHARACTERS_MAX = 63
ANNOTATIONS_BYTES_MAX = 256 * 1024

_GENERATED_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_GENERATED_CHARACTERS = 5
_GENERATE_BASE_MAX = LABEL_CHARACTERS_MAX - _GENERATED_CHARACTERS

NAMED_LIKE_PATHS = frozenset(("roles", "rolebindings", "clusterroles", "clusterrolebindings"))
"""RBAC names may be anything that fits in a URL path segment, e.g. `system:controller:x`."""


_TEXT = frozenset((str,))


def timestamp(wall_s: float) -> str:
    """Return a time as the API writes it: RFC 3339, UTC, whole seconds."""
    return _second(int(wall_s))


@lru_cache(maxsize=SECONDS_REMEMBERED)
def _second(wall_s: int) -> str:
    return datetime.fromtimestamp(wall_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def generated_name(base: str, rng: Random) -> str:
    """Return `base` with a random suffix. Source: k8s.io/apiserver/pkg/storage/names/generate.go."""
    return base[:_GENERATE_BASE_MAX] + "".join(rng.choices(_GENERATED_ALPHABET, k=_GENERATED_CHARACTERS))


def check_types(meta: Any) -> None:
    """Raise 400 when metadata could not be decoded into ObjectMeta."""
    if not isinstance(meta, dict):
        raise bad_request(f"expected metadata to be an object, saw {type(meta).__name__}")
    for field in ("labels", "annotations"):
        texts = meta.get(field)
        if not texts or _TEXT.issuperset(map(type, texts.values())):
            continue
        for key, value in texts.items():
            if not isinstance(value, str):
                raise _not_a_string(field, key, value)
    for field in ("name", "namespace", "generateName", "uid", "resourceVersion"):
        value = meta.get(field)
        if value is not None and not isinstance(value, str):
            raise _not_a_string(field, "", value)


def _not_a_string(field: str, key: str, value: Any) -> StatusError:
    kind = {bool: "bool", int: "number", float: "number", dict: "object", list: "array"}.get(type(value), "null")
    path = f"metadata.{field}" + (f".{key}" if key else "")
    return bad_request(f"json: cannot unmarshal {kind} into Go struct field ObjectMeta.{path} of type string")


def name_causes(plural: str, meta: dict[str, Any]) -> Iterable[StatusCause]:
    """Return the rules that a new object's name breaks."""
    name = meta.get("name")
    if not name:
        yield required("metadata.name", "Required value: name or generateName is required")
    elif plural in NAMED_LIKE_PATHS:
        if "/" in name or "%" in name:
            yield bad_value("metadata.name", name, "may not contain '/' or '%'")
    elif plural in ("namespaces", "services"):
        yield from (bad_value("metadata.name", name, why) for why in dns_label(name))
    elif len(name) > NAME_CHARACTERS_MAX:
        yield bad_value("metadata.name", name, f"must be no more than {NAME_CHARACTERS_MAX} bytes")
    else:
        yield from (bad_value("metadata.name", name, why) for why in subdomain(name))


def map_causes(meta: dict[str, Any], path: str = "metadata") -> Iterable[StatusCause]:
    """Return the rules that labels and annotations break, of an object or of a template."""
    yield from label_causes(meta.get("labels"), f"{path}.labels")
    total = 0
    for key, value in (meta.get("annotations") or {}).items():
        total += len(key) + len(value)
        yield from (bad_value(f"{path}.annotations", key, why) for why in annotation_key(key))
    if total > ANNOTATIONS_BYTES_MAX:
        message = f"Too long: may not be more than {ANNOTATIONS_BYTES_MAX} bytes"
        yield StatusCause(f"{path}.annotations", message, "FieldValueTooLong")


def label_causes(labels: Mapping[str, str] | None, path: str) -> Iterable[StatusCause]:
    """Return the rules that labels break; the API names only their field."""
    for key, value in (labels or {}).items():
        yield from (bad_value(path, key, why) for why in label_key(key))
        yield from (bad_value(path, value, why) for why in label_value(value))


def owner_causes(meta: dict[str, Any]) -> Iterable[StatusCause]:
    """Return the rules that owner references break."""
    controllers = 0
    for index, owner in enumerate(meta.get("ownerReferences") or ()):
        for field in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(field):
                path = f"metadata.ownerReferences[{index}].{field}"
                yield bad_value(path, "", f"{'version' if field == 'apiVersion' else field} must not be empty")
        controllers += bool(owner.get("controller"))
    if controllers > 1:
        yield bad_value("metadata.ownerReferences", None, "Only one reference can have Controller set to true")


def kept(new: dict[str, Any], old: dict[str, Any]) -> dict[str, Any]:
    """Return the metadata of an update with the fields that only the server sets put back."""
    result = dict(new)
    for field in ("uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds"):
        if field in old:
            result[field] = old[field]
        else:
            result.pop(field, None)
    for field in ("generateName", "managedFields"):
        if field in old and field not in new:
            result[field] = old[field]
    result.pop("selfLink", None)
    result["resourceVersion"] = old["resourceVersion"]
    return result


def update_causes(new: KubeObject, old: KubeObject) -> Iterable[StatusCause]:
    """Return the rules that an update of metadata breaks."""
    meta, before = new["metadata"], old["metadata"]
    for field in ("name", "namespace"):
        if (meta.get(field) or "") != (before.get(field) or ""):
            yield bad_value(f"metadata.{field}", meta.get(field), "field is immutable")
    if meta.get("labels") != before.get("labels") or meta.get("annotations") != before.get("annotations"):
        yield from map_causes(meta)
    if meta.get("ownerReferences") != before.get("ownerReferences"):
        yield from owner_causes(meta)
    if before.get("deletionTimestamp"):
        added = set(meta.get("finalizers") or ()) - set(before.get("finalizers") or ())
        if added:
            rule = "no new finalizers can be added if the object is being deleted, found new finalizers"
            message = f"Forbidden: {rule} {sorted(added)}"
            yield StatusCause("metadata.finalizers", message, "FieldValueForbidden")
