"""
Apply JSON merge patches (RFC 7386) and JSON patches (RFC 6902) without touching their target.

Guarantees: the result shares every part of the target that the patch leaves alone, so an annotation PATCH costs the
same on a small object and on a large one.
"""

from __future__ import annotations

from typing import Any

OPERATIONS_MAX = 10_000
"""Source: k8s.io/apiserver/pkg/endpoints/handlers/patch.go maxJSONPatchOperations."""


class PatchError(ValueError):
    """The patch does not fit its target (422)."""


def merge_patch(target: Any, patch: Any) -> Any:
    """Return the target with a merge patch applied."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            result[key] = merge_patch(result.get(key), value)
        else:
            result[key] = value
    return result


def json_patch(target: Any, operations: list[Any]) -> Any:
    """Return the target with JSON patch operations applied, all or none."""
    for operation in operations:
        target = _apply(target, operation)
    return target


def _apply(target: Any, operation: dict[str, Any]) -> Any:
    verb = operation.get("op")
    path = _pointer(operation.get("path"))
    match verb:
        case "add":
            return _put(target, path, operation.get("value"), inserts=True)
        case "remove":
            return _remove(target, path)
        case "replace":
            _read(target, path)
            return _put(target, path, operation.get("value"), inserts=False)
        case "test":
            if _read(target, path, missing=None) != operation.get("value"):
                raise PatchError(f"testing value {operation.get('path')} failed")
            return target
        case "copy":
            return _put(target, path, _read(target, _pointer(operation.get("from"))), inserts=True)
        case "move":
            source = _pointer(operation.get("from"))
            return _put(_remove(target, source), path, _read(target, source), inserts=True)
    raise PatchError(f"Unexpected kind: {verb}")


_REQUIRED: Any = object()


def _pointer(path: Any) -> list[str]:
    if not isinstance(path, str) or (path and not path.startswith("/")):
        raise PatchError(f"expected a JSON pointer, saw {path!r}")
    return [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]


def _read(target: Any, path: list[str], missing: Any = _REQUIRED) -> Any:
    for part in path:
        if isinstance(target, dict) and part in target:
            target = target[part]
        elif isinstance(target, list) and part.isdigit() and int(part) < len(target):
            target = target[int(part)]
        elif missing is _REQUIRED:
            raise PatchError(f"{'/'.join(['', *path])}: missing value")
        else:
            return missing
    return target


def _edit(target: Any, path: list[str], change: Any) -> Any:
    """Return a copy of the target in which `change(container copy, last part)` was made at the end of the path."""
    if isinstance(target, dict):
        copy: Any = dict(target)
    elif isinstance(target, list):
        copy = list(target)
    else:
        raise PatchError(f"expected an object or array at {path[0]!r}")
    part = path[0]
    if len(path) == 1:
        change(copy, part)
        return copy
    child = _read(target, [part])
    copy[part if isinstance(copy, dict) else int(part)] = _edit(child, path[1:], change)
    return copy


def _index(items: list[Any], part: str, *, end: int) -> int:
    if not part.isdigit() or int(part) > end:
        raise PatchError(f"Unable to access invalid index: {part}: array has {len(items)} items")
    return int(part)


def _put(target: Any, path: list[str], value: Any, *, inserts: bool) -> Any:
    """Return the target with a value at a path; into an array it is inserted, or replaces an item."""
    if not path:
        return value

    def change(container: Any, part: str) -> None:
        if isinstance(container, dict):
            container[part] = value
        elif inserts and part == "-":
            container.append(value)
        elif inserts:
            container.insert(_index(container, part, end=len(container)), value)
        else:
            container[_index(container, part, end=len(container) - 1)] = value

    return _edit(target, path, change)


def _remove(target: Any, path: list[str]) -> Any:
    if not path:
        raise PatchError("expected a path to remove, saw the whole document")
    _read(target, path)

    def change(container: Any, part: str) -> None:
        if isinstance(container, dict):
            del container[part]
        else:
            del container[_index(container, part, end=len(container) - 1)]

    return _edit(target, path, change)
