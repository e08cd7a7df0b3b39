"""
Write what the CRD says about the inside of a Job template, from the OpenAPI document of batch/v1.

Kueue keeps a copy of each template in its Workload, whose CRD fills in defaults such as `protocol: TCP` of a port. It
compares the two, and would find a difference for ever (docs/adr/0012). So the CRD sets the defaults that upstream's CRD
and Kueue's set, and names the keys by which server-side apply merges lists. Nothing else is declared: every object
keeps fields that no schema names.

`python -m testbed.template_schema` reads the document from the Kubernetes that the testbed builds, and calls this.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any, Final

import yaml

OpenApi = Mapping[str, Any]
Node = dict[str, Any]

JOB_SPEC: Final = "io.k8s.api.batch.v1.JobSpec"
POD_SPEC: Final = "io.k8s.api.core.v1.PodSpec"
BY_HAND: Final = frozenset(("template", "metadata"))
"""Fields that the CRD declares by hand (`template`), or whose schema is Kubernetes' own (`metadata`)."""

NOT_DEFAULTED: Final = frozenset(("cachingMode", "kind", "status"))
"""
Fields whose default upstream's CRD and Kueue's do not set: two of azureDisk, which are Go constants, and the status in
`onPodConditions`, whose default is the zero value that the document gives a field without `omitempty`.
"""

_OBJECT: Final[Node] = {"type": "object"}
_NULLABLE: Final[Node] = {"nullable": True}
"""A field that stands empty in YAML: server-side apply does not drop it, and would be refused."""
_NULLABLE_LIST: Final[Node] = {"type": "array"} | _NULLABLE
_OPEN: Final[Node] = {"x-kubernetes-preserve-unknown-fields": True}

WIDTH: Final = 120
_BLOCK: Final = "# {word} {name}: made by `python -m testbed.template_schema`"


def insert(manifest: str, openapi: OpenApi) -> str:
    """
    Return the CRD's manifest with both generated blocks written anew.

    Raises:
        ValueError: the manifest has no place for a block.
    """
    for name, definition in (("job spec", JOB_SPEC), ("pod spec", POD_SPEC)):
        manifest = _replaced(manifest, name, _properties(_definition(openapi, definition), openapi))
    return manifest


def _replaced(manifest: str, name: str, properties: Node) -> str:
    first, last = (_BLOCK.format(word=word, name=name) for word in ("Begin", "End"))
    found = re.search(rf"^( *){re.escape(first)}\n.*?^ *{re.escape(last)}\n", manifest, re.DOTALL | re.MULTILINE)
    if found is None:
        raise ValueError(f"expected the lines {first!r} and {last!r} in the manifest, saw none")
    text = yaml.safe_dump(properties, default_flow_style=None, width=WIDTH, sort_keys=False)
    block = textwrap.indent(f"{first}\n{text}{last}\n", found[1])
    return manifest[: found.start()] + block + manifest[found.end() :]


def _definition(openapi: OpenApi, name: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = openapi["components"]["schemas"][name]
    return found


def _resolved(field: Mapping[str, Any], openapi: OpenApi) -> Mapping[str, Any]:
    """Return a field with what it refers to; its own words win."""
    for reference in (*field.get("allOf", ()), field):
        if "$ref" in reference:
            return {**_definition(openapi, reference["$ref"].rpartition("/")[2]), **field}
    return field


def _properties(schema: Mapping[str, Any], openapi: OpenApi) -> Node:
    """Return those properties of an object about which the CRD has something to say."""
    return dict(_said(schema, openapi))


def _said(schema: Mapping[str, Any], openapi: OpenApi) -> Iterator[tuple[str, Node]]:
    required = schema.get("required", ())
    for name, field in sorted(schema.get("properties", {}).items()):
        if name in BY_HAND:
            continue
        node = _node(_resolved(field, openapi), openapi)
        # The document gives every required field a zero value for its default, and every object {}.
        if field.get("default", {}) != {} and name not in required and name not in NOT_DEFAULTED:
            node |= {"type": field["type"], "default": field["default"]}
        if node:
            yield name, node


def _node(schema: Mapping[str, Any], openapi: OpenApi) -> Node:
    """Return the schema of a field, empty where there is nothing to say."""
    if schema.get("type") == "array":
        return _list(schema, openapi)
    found: Node = {}
    if schema.get("x-kubernetes-map-type") == "atomic":
        found["x-kubernetes-map-type"] = "atomic"
    if properties := _properties(schema, openapi):
        found["properties"] = properties
    return _OBJECT | _NULLABLE | _OPEN | found if found else {}


def _list(schema: Mapping[str, Any], openapi: OpenApi) -> Node:
    list_type, items = schema.get("x-kubernetes-list-type"), _resolved(schema["items"], openapi)
    if list_type == "set":
        return _NULLABLE_LIST | {"x-kubernetes-list-type": "set", "items": {"type": items["type"]}}
    found = _node(items, openapi)
    found.pop("nullable", None)
    if list_type == "map":
        keys = list(schema["x-kubernetes-list-map-keys"])
        inside = found.get("properties", {})
        missing = {key: {"type": items["properties"][key]["type"]} for key in keys if key not in inside}
        found = _OBJECT | _OPEN | found | {"properties": missing | inside}
        found |= {"required": list(missing)} if missing else {}
        return _NULLABLE_LIST | {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys, "items": found}
    return _NULLABLE_LIST | {"items": found} if found else {}
