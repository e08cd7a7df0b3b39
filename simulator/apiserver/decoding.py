"""
Decode the spec of a Job or a Pod into its Go types, as the real server does before anything else judges it.

The types stand in job_types.json, from the OpenAPI document of the Kubernetes that the testbed builds.
Source: sigs.k8s.io/json; k8s.io/apimachinery/pkg/api/resource/quantity.go and /util/intstr.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from inplace.simulator.apiserver.status import StatusError, bad_request

TYPES: Final[Mapping[str, Mapping[str, str]]] = json.loads((Path(__file__).parent / "job_types.json").read_text())
"""The fields of each type, and their types: a scalar, a type, [T] or {T}."""

_JSON: Final = {bool: "bool", str: "string", dict: "object", list: "array", int: "number", float: "number"}
_SCALARS: Final = {"string": str, "boolean": bool, "Time": str}
_INTEGERS: Final = {"int32": 2**31, "int64": 2**63}
_QUANTITY: Final = re.compile(r"[+-]?[0-9]*\.?[0-9]*(?P<suffix>[eEinumkKMGTP]*[-+]?[0-9]*)")
_SUFFIX: Final = re.compile(r"|[numkMGTPE]|[KMGTPE]i|[eE][-+]?[0-9]+")
_QUANTITY_RULE: Final = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"  # the API's words
)


def decoded(value: Any, type_name: str, path: str, kind: str, *, strict: bool) -> Any:
    """Return a value of a type without nulls and unknown fields; the same object where it has none.

    Raises:
        StatusError: 400, a part has another JSON type, or (`strict`) a field is unknown.
    """
    decoder = _Decoder(kind, path)
    result = decoder.value(value, type_name, path, path)
    if strict and decoder.unknown:
        unknown = ", ".join(f'unknown field "{field}"' for field in decoder.unknown)
        raise decoder.error(f"strict decoding error: {unknown}")
    return result


def misfit(value: Any, type_name: str, path: str) -> tuple[str, Any] | None:
    """Return the path and the value of the first part that cannot be decoded; the server's refusal may not name it."""
    decoder = _Decoder("", path)
    try:
        decoder.value(value, type_name, path, path)
    except StatusError:
        return decoder.reached
    return None


class _Decoder:
    """Decodes one value; `unknown` are the fields that its type has not, `reached` is the part that came last."""

    def __init__(self, kind: str, path: str) -> None:
        self.unknown: list[str] = []
        self.reached: tuple[str, Any] = (path, None)
        self._kind = kind
        self._owner = f"{kind}.{path}"  # the Go struct and the path of its field, without places in lists

    def error(self, why: str) -> StatusError:
        return bad_request(f'{self._kind} in version "v1" cannot be handled as a {self._kind}: {why}')

    def value(self, value: Any, type_name: str, path: str, plain: str) -> Any:
        """Return a value as its type has it; `plain` is the path without places in lists."""
        self.reached = path, value
        if type_name in TYPES:
            return self._struct(value, type_name, path, plain)
        if type_name.startswith("["):
            return self._list(value, type_name[1:-1], path, plain)
        if type_name.startswith("{"):
            return self._map(value, type_name[1:-1], path, plain)
        return self._scalar(value, type_name)

    def _struct(self, value: Any, type_name: str, path: str, plain: str) -> Any:
        if not isinstance(value, dict):
            raise self._mismatch(value, f"v1.{type_name}")
        fields, result, is_changed = TYPES[type_name], {}, False
        for name, item in value.items():
            here = f"{path}.{name}"
            if name not in fields:
                self.unknown.append(here)
            elif item is not None:
                self._owner = f"{type_name}.{plain}.{name}"
                result[name] = self.value(item, fields[name], here, f"{plain}.{name}")
                is_changed = is_changed or result[name] is not item
        return result if is_changed or len(result) < len(value) else value

    def _list(self, value: Any, item_type: str, path: str, plain: str) -> Any:
        if not isinstance(value, list):
            raise self._mismatch(value, f"[]{_go(item_type)}")
        result = [self._item(item, item_type, f"{path}[{at}]", plain) for at, item in enumerate(value)]
        return value if all(new is old for new, old in zip(result, value, strict=True)) else result

    def _map(self, value: Any, item_type: str, path: str, plain: str) -> Any:
        if not isinstance(value, dict):
            raise self._mismatch(value, f"map[string]{_go(item_type)}")
        result = {key: self._item(item, item_type, f"{path}[{key}]", plain) for key, item in value.items()}
        return value if all(new is value[key] for key, new in result.items()) else result

    def _item(self, value: Any, type_name: str, path: str, plain: str) -> Any:
        """Return an item of a list or map; null is the zero value of its type."""
        if value is None:
            return {} if type_name in TYPES else "" if type_name == "string" else 0
        return self.value(value, type_name, path, plain)

    def _scalar(self, value: Any, type_name: str) -> Any:
        if type_name == "Quantity":
            self._check_quantity(value)
        elif type_name == "IntOrString" and isinstance(value, str):
            pass
        elif type_name in ("IntOrString", *_INTEGERS):
            bound = _INTEGERS.get(type_name, 2**31)
            if type(value) is not int or not -bound <= value < bound:
                raise self._mismatch(value, type_name if type_name in _INTEGERS else "int32")
        elif type_name in _SCALARS and type(value) is not _SCALARS[type_name]:
            raise self._mismatch(value, "bool" if type_name == "boolean" else "string")
        return value

    def _check_quantity(self, value: Any) -> None:
        text = json.dumps(value) if not isinstance(value, str) else value.strip()
        found = _QUANTITY.fullmatch(text) if text else None
        if found is None:
            raise self.error(_QUANTITY_RULE)
        if not _SUFFIX.fullmatch(found["suffix"]):
            raise self.error("unable to parse quantity's suffix")

    def _mismatch(self, value: Any, go_type: str) -> StatusError:
        seen = _JSON[type(value)]
        seen = f"number {value}" if seen == "number" and go_type.startswith("int") else seen
        return self.error(f"json: cannot unmarshal {seen} into Go struct field {self._owner} of type {go_type}")


def _go(type_name: str) -> str:
    return f"v1.{type_name}" if type_name in TYPES else {"boolean": "bool"}.get(type_name, type_name)
