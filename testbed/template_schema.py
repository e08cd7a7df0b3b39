"""
Write what is generated of the CRD, and the embedded API server's types: `python -m testbed.template_schema`.

The OpenAPI document comes from the kube-apiserver that the testbed builds. So a new version of Kubernetes in
testbed/kubelab/go.mod, and this command, bring both to that version.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from inplace.deploy.template_schema import insert
from testbed.binaries import find_binaries
from testbed.control_plane import ControlPlane
from testbed.go_module import print_made
from testbed.kube_client import CRD

OPENAPI_PATH: Final = "/openapi/v3/apis/batch/v1"
TYPES: Final = Path(__file__).parent.parent / "simulator" / "apiserver" / "job_types.json"
OPAQUE: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1"
"""An object with any fields; that its schema names none means nothing."""

ROOT: Final = "io.k8s.api.batch.v1.JobSpec"


async def published(plane: ControlPlane) -> dict[str, Any]:
    """Return the OpenAPI document of batch/v1 that a server publishes."""
    async with plane.client() as client:
        document: dict[str, Any] = await client.get(OPENAPI_PATH)
        return document


def types_text(openapi: Mapping[str, Any]) -> str:
    """Return each type that a Job's spec is made of, a line for each: its fields and their types."""
    schemas, found, todo = openapi["components"]["schemas"], dict[str, dict[str, str]](), [ROOT]
    for name in todo:
        if (
            schemas[name].get("type") == "object" and name != OPAQUE
        ):  # the others are scalars with a format of their own
            fields = sorted(schemas[name].get("properties", {}).items())
            found[_short(name)] = {field: _kind(schema, todo) for field, schema in fields}
    lines = (f"{json.dumps(name)}: {json.dumps(fields)}" for name, fields in sorted(found.items()))
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _kind(schema: Mapping[str, Any], todo: list[str]) -> str:
    """Return a field's type: a scalar's name, a type's name, [T] or {T}; a type that is new is appended to `todo`."""
    if reference := next((one["$ref"] for one in (*schema.get("allOf", ()), schema) if "$ref" in one), None):
        name = reference.rpartition("/")[2]
        todo.extend({name} - set(todo))
        return _short(name)
    if schema["type"] == "array":
        return f"[{_kind(schema['items'], todo)}]"
    if schema["type"] == "object":
        return f"{{{_kind(schema['additionalProperties'], todo)}}}"
    return str(schema.get("format") or schema["type"])


def _short(name: str) -> str:
    return name.rpartition(".")[2]


async def write() -> Path:
    """Start a control plane, read its document, and write the CRD and the types; return the CRD's path."""
    async with ControlPlane(find_binaries()) as plane:
        openapi = await published(plane)
    CRD.write_text(insert(CRD.read_text(), openapi))
    TYPES.write_text(types_text(openapi))
    return CRD


if __name__ == "__main__":
    sys.exit(print_made("template_schema", lambda: asyncio.run(write())))
