"""
Say which keywords of a structural schema an object breaks, in the real server's words.

Unchanged parts of an update are not validated again, so that a schema may be tightened under existing objects
(CRD validation ratcheting).
Source: k8s.io/kube-openapi/pkg/validation/validate; KEP-4008.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import msgspec

from inplace.simulator.apiserver.schema import Schema
from inplace.simulator.apiserver.status import StatusCause, bad_value, not_supported, required, show

_INT64_MAX = 2**63 - 1
_RANGES = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), _INT64_MAX)}
_PATTERNS_MAX = 512
_JSON_TYPES: dict[type, str] = {
    dict: "object",
    list: "array",
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
}


def validate(value: Any, schema: Schema, path: str, causes: list[StatusCause], old: Any = None) -> None:
    """Append a cause for each broken keyword below `path`; a part that is unchanged is left alone."""
    if old is not None and _is_unchanged(value, old, schema):
        return
    if value is None and schema.raw.get("nullable"):
        return
    if not _has_type(value, schema, path, causes):
        return
    _validate_enum(value, schema, path, causes)
    if isinstance(value, dict):
        _validate_object(value, schema, path, causes, old if isinstance(old, dict) else {})
    elif isinstance(value, list):
        _validate_list(value, schema, path, causes, old if isinstance(old, list) else [])
    elif isinstance(value, str):
        _validate_string(value, schema.raw, path, causes)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        _validate_number(value, schema.raw, path, causes)
    _validate_combinations(value, schema, path, causes)


def _is_unchanged(value: Any, old: Any, schema: Schema) -> bool:
    """
    Say whether the server takes a part for unchanged: equal, and without a field that the schema does not name.

    Source: apiserver/pkg/cel/common/equality.go, CachedDeepEqual and Key.
    """
    if value != old:
        return False
    if isinstance(value, dict):
        children = ((item, old[key], schema.child(key)) for key, item in value.items())
        return all(child is not None and _is_unchanged(new, was, child) for new, was, child in children)
    if isinstance(value, list) and schema.list_type == "map" and schema.items is not None:
        return all(_is_unchanged(new, was, schema.items) for new, was in zip(value, old, strict=True))
    return True


def _has_type(value: Any, schema: Schema, path: str, causes: list[StatusCause]) -> bool:
    actual = _JSON_TYPES[type(value)]
    if actual == "integer" and not -_INT64_MAX - 1 <= value <= _INT64_MAX:
        actual = "number"
    if schema.int_or_string:
        wanted, fits = "integer,string", actual in ("integer", "string")
    else:
        wanted = schema.type
        fits = not wanted or actual == wanted or (wanted == "number" and actual == "integer")
        fits = fits or (wanted == "integer" and actual == "number" and float(value).is_integer() and abs(value) < 2**63)
    if not fits:
        message = f"Invalid value: {show(actual)}: {path} in body must be of type {wanted}: {show(actual)}"
        causes.append(StatusCause(path, message, "FieldValueTypeInvalid"))
    return fits


def _validate_enum(value: Any, schema: Schema, path: str, causes: list[StatusCause]) -> None:
    allowed = schema.raw.get("enum")
    if allowed and value not in allowed:
        causes.append(not_supported(path, value, [str(item) for item in allowed]))


def _validate_object(
    value: dict[str, Any], schema: Schema, path: str, causes: list[StatusCause], old: dict[str, Any]
) -> None:
    causes.extend(required(_join(path, key)) for key in schema.raw.get("required") or () if key not in value)
    for bound, word, broken in (
        ("maxProperties", "at most", len(value).__gt__),
        ("minProperties", "at least", len(value).__lt__),
    ):
        limit = schema.raw.get(bound)
        if limit is not None and broken(limit):
            causes.append(bad_value(path, len(value), f"must have {word} {limit} properties"))
    for key, item in value.items():
        child = schema.child(key)
        if child is not None:
            validate(item, child, _join(path, key), causes, old.get(key))


def _validate_list(value: list[Any], schema: Schema, path: str, causes: list[StatusCause], old: list[Any]) -> None:
    most, least = schema.raw.get("maxItems"), schema.raw.get("minItems")
    if most is not None and len(value) > most:
        causes.append(StatusCause(path, f"Too many: {len(value)}: must have at most {most} items", "FieldValueTooMany"))
    if least is not None and len(value) < least:
        causes.append(bad_value(path, len(value), f"{path} in body should have at least {least} items"))
    before = {_item_key(item, schema, index): item for index, item in enumerate(old)}
    for index, item in enumerate(value):
        key = _item_key(item, schema, index)
        if schema.items is not None:
            validate(item, schema.items, f"{path}[{index}]", causes, before.get(key))


def duplicates(value: Any, schema: Schema, path: str = "") -> list[StatusCause]:
    """
    Return a cause for each item of a set, or key of a map, that a list holds twice.

    Source: k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype. An object that held some before may keep them.
    """
    if not schema.has_keyed_lists:
        return []
    if isinstance(value, dict):
        return [
            cause
            for key, item in value.items()
            if (child := schema.child(key)) is not None
            for cause in duplicates(item, child, _join(path, key))
        ]
    return _duplicate_items(value, schema, path) if isinstance(value, list) else []


def _duplicate_items(value: list[Any], schema: Schema, path: str) -> list[StatusCause]:
    causes: list[StatusCause] = []
    seen: set[str] = set()
    for index, item in enumerate(value):
        key = _item_key(item, schema, index)
        if schema.list_type != "atomic" and key in seen:
            causes.append(StatusCause(f"{path}[{index}]", f"Duplicate value: {key}", "FieldValueDuplicate"))
        seen.add(key)
        if schema.items is not None:
            causes += duplicates(item, schema.items, f"{path}[{index}]")
    return causes


def _item_key(item: Any, schema: Schema, index: int) -> str:
    if schema.list_type == "map" and isinstance(item, dict):
        return msgspec.json.encode({key: item[key] for key in schema.list_keys if key in item}).decode()
    return show(item) if schema.list_type == "set" else str(index)


def _validate_string(value: str, raw: dict[str, Any], path: str, causes: list[StatusCause]) -> None:
    most, least, pattern = raw.get("maxLength"), raw.get("minLength"), raw.get("pattern")
    if most is not None and len(value) > most:
        causes.append(StatusCause(path, f"Too long: may not be more than {most} bytes", "FieldValueTooLong"))
    if least is not None and len(value) < least:
        causes.append(bad_value(path, value, f"{path} in body should be at least {least} chars long"))
    if pattern and not _compiled(pattern).search(value):
        causes.append(bad_value(path, value, f"{path} in body should match '{pattern}'"))


@lru_cache(maxsize=_PATTERNS_MAX)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def _validate_number(value: float, raw: dict[str, Any], path: str, causes: list[StatusCause]) -> None:
    least, most = raw.get("minimum"), raw.get("maximum")
    if least is not None and (value <= least if raw.get("exclusiveMinimum") else value < least):
        causes.append(bad_value(path, value, f"{path} in body should be greater than or equal to {least}"))
    if most is not None and (value >= most if raw.get("exclusiveMaximum") else value > most):
        causes.append(bad_value(path, value, f"{path} in body should be less than or equal to {most}"))
    low, high = _RANGES.get(raw.get("format", ""), (None, None))
    if low is not None and high is not None and not low <= value <= high:
        # The real server loses the path here; clients see it in the message only.
        message = f'Invalid value: "": Checked value must be of type integer with format {raw["format"]} in {path}'
        causes.append(StatusCause("<nil>", message))


def _validate_combinations(value: Any, schema: Schema, path: str, causes: list[StatusCause]) -> None:
    raw = schema.raw
    for part in raw.get("allOf") or ():
        validate(value, Schema.parse(part), path, causes)
    for keyword, bound in (("anyOf", None), ("oneOf", 1)):
        parts = raw.get(keyword)
        if parts and not schema.int_or_string:
            fitting = sum(_fits(value, part, path) for part in parts)
            if fitting == 0 or (bound is not None and fitting > bound):
                causes.append(bad_value(path, value, f"{path} in body must validate against {keyword}"))
    if raw.get("not") and _fits(value, raw["not"], path):
        causes.append(bad_value(path, value, f"{path} in body must not validate against the schema (not)"))


def _fits(value: Any, raw: dict[str, Any], path: str) -> bool:
    causes: list[StatusCause] = []
    validate(value, Schema.parse(raw), path, causes)
    return not causes


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
