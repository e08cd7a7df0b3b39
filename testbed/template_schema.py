"""
Write the generated part of the CRD anew: `python -m testbed.template_schema`.

The OpenAPI document comes from the kube-apiserver that the testbed builds. So a new version of Kubernetes in
testbed/kubelab/go.mod, and this command, bring the CRD to that version.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any, Final

from inplace.deploy.template_schema import insert
from testbed.binaries import find_binaries
from testbed.control_plane import ControlPlane
from testbed.crd import CRD
from testbed.go_module import print_made

OPENAPI_PATH: Final = "/openapi/v3/apis/batch/v1"


async def published(plane: ControlPlane) -> dict[str, Any]:
    """Return the OpenAPI document of batch/v1 that a server publishes."""
    async with plane.client() as client:
        document: dict[str, Any] = await client.get(OPENAPI_PATH)
        return document


async def write() -> Path:
    """Start a control plane, read its document, and write the CRD; return its path."""
    async with ControlPlane(find_binaries()) as plane:
        CRD.write_text(insert(CRD.read_text(), await published(plane)))
    return CRD


if __name__ == "__main__":
    sys.exit(print_made("template_schema", lambda: asyncio.run(write())))
