"""
Apply strategic merge patches: merge patches that merge some lists by key.

The field name decides whether a list merges, and by which key; the built-in kinds in use are consistent in that.
Source: k8s.io/apimachinery/pkg/util/strategicpatch; patchMergeKey tags of k8s.io/api.
"""

from __future__ import annotations

from typing import Any

from inplace.simulator.apiserver.merge_patch import PatchError

MERGE_KEYS: dict[str, tuple[str, ...]] = {
    "containers": ("name",),
    "initContainers": ("name",),
    "ephemeralContainers": ("name",),
    "env": ("name",),
    "volumes": ("name",),
    "volumeMounts": ("mountPath",),
    "volumeDevices": ("devicePath",),
    # Containers merge ports by containerPort, Services by port: the key that the items have is used.
    "ports": ("containerPort", "port"),
    "imagePullSecrets": ("name",),
    "secrets": ("name",),
    "hostAliases": ("ip",),
    "topologySpreadConstraints": ("topologyKey",),
    "resourceClaims": ("name",),
    "schedulingGates": ("name",),
    "conditions": ("type",),
    "addresses": ("type",),
    "podIPs": ("ip",),
    "hostIPs": ("ip",),
    "taints": ("key",),
    "ownerReferences": ("uid",),
}
MERGED_PRIMITIVES = frozenset(("finalizers",))

_DIRECTIVE = "$patch"
_DELETE_PRIMITIVES = "$deleteFromPrimitiveList/"
_ELEMENT_ORDER = "$setElementOrder/"
_RETAIN_KEYS = "$retainKeys"


def strategic_merge(target: Any, patch: Any) -> Any:
    """Return the target with a strategic merge patch applied; the target stays as it is.

    An unchanged part is the same Python object as before: the rest of the write finds changes with `is`.
    """
    if not isinstance(patch, dict):
        return patch
    directive = patch.get(_DIRECTIVE)
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != _DIRECTIVE}
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise PatchError(f"Unknown patch type: {directive}")
    result = dict(target) if isinstance(target, dict) else {}
    if _RETAIN_KEYS in patch:
        result = {key: value for key, value in result.items() if key in patch[_RETAIN_KEYS]}
    for key, value in patch.items():
        if key.startswith("$"):
            _directive(result, key, value, patch)
        elif value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            result[key] = strategic_merge(result.get(key), value)
        elif isinstance(value, list):
            result[key] = _merge_list(result.get(key), value, key, patch.get(_ELEMENT_ORDER + key))
        else:
            result[key] = value
    return target if result == target else result


def _directive(result: dict[str, Any], key: str, value: Any, patch: dict[str, Any]) -> None:
    if key.startswith(_DELETE_PRIMITIVES):
        name = key.removeprefix(_DELETE_PRIMITIVES)
        if name in result:
            result[name] = [item for item in result[name] if item not in value]
    elif key.startswith(_ELEMENT_ORDER):
        name = key.removeprefix(_ELEMENT_ORDER)
        if name not in patch and name in result:
            result[name] = _ordered(result[name], value)


def _merge_list(target: Any, patch: list[Any], name: str, order: list[Any] | None) -> list[Any]:
    old = target if isinstance(target, list) else []
    if name in MERGED_PRIMITIVES:
        return [*old, *(item for item in patch if item not in old)]
    key = _merge_key(name, patch, old)
    if key is None:
        return patch
    if any(isinstance(item, dict) and item.get(_DIRECTIVE) == "replace" for item in patch):
        return [item for item in patch if item.get(_DIRECTIVE) != "replace"]
    merged = list(old)
    for item in patch:
        if not isinstance(item, dict) or key not in item:
            raise PatchError(f"map: {item} does not contain declared merge key: {key}")
        at = next((index for index, found in enumerate(merged) if found.get(key) == item[key]), None)
        if item.get(_DIRECTIVE) == "delete":
            merged = [found for found in merged if found.get(key) != item[key]]
        elif at is None:
            merged.append(strategic_merge({}, item))
        else:
            merged[at] = strategic_merge(merged[at], item)
    return _ordered(merged, order) if order else merged


def _merge_key(name: str, patch: list[Any], old: list[Any]) -> str | None:
    keys = MERGE_KEYS.get(name, ())
    if len(keys) < 2:
        return keys[0] if keys and any(isinstance(item, dict) for item in (*patch, *old)) else None
    items = [item for item in (*patch, *old) if isinstance(item, dict)]
    for key in keys:
        if all(key in item or _DIRECTIVE in item for item in items):
            return key
    return keys[0] if keys and items else None


def _ordered(items: list[Any], order: list[Any]) -> list[Any]:
    """Return the items in the order that the patch names; items that it does not name come last."""

    def rank(item: Any) -> int:
        for index, wanted in enumerate(order):
            if item == wanted:
                return index
            if isinstance(wanted, dict) and isinstance(item, dict) and wanted.items() <= item.items():
                return index
        return len(order)

    return sorted(items, key=rank)
