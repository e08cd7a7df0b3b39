"""
Print a table: every file of `manifests/` and what each tool does with it; exit code 1 where that is not expected.

The last column is a real kube-apiserver's answer, which has to be the embedded one's in every word. Where none is built
(`make cluster`) it has `-`, and one line on stderr says so.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from images.build_once import MissingComponent
from inplace.common.kube.client import KubeClient
from testbed.binaries import find_binaries
from testbed.control_plane import ControlPlane
from tests.cases.case import COLUMNS, OTHER_NAMESPACE, Seen, cases, differences, seen, seen_by_api, table
from tests.cluster.test_crd_real import install
from tests.conformance.templates import APISERVER_FLAGS
from tests.http_transport import transport_for

DRY_RUN = "kube-apiserver"


async def dry_runs() -> dict[str, Seen]:
    """Return what a kube-apiserver says of each file; {} where none is built (`make cluster`)."""
    try:
        control_plane = ControlPlane(find_binaries(), apiserver_flags=APISERVER_FLAGS)
    except MissingComponent as error:
        print(f"{DRY_RUN}: left out: {error}", file=sys.stderr)
        return {}
    async with control_plane, control_plane.client() as api:
        await install(api)
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OTHER_NAMESPACE}}
        await api.post("/api/v1/namespaces", namespace)
        transport = transport_for(control_plane.kubeconfig)
        client = KubeClient(transport, user_agent="cases", field_manager="cases")
        try:
            return {case.name: await seen_by_api(case.file, client) for case in cases()}
        finally:
            await transport.close()


def main() -> int:
    """Print the table and the differences."""
    real = asyncio.run(dry_runs())
    rows, wrong = [["file", *COLUMNS, DRY_RUN]], []
    with TemporaryDirectory() as folder:
        for case in cases():
            found = seen(case.file, Path(folder))
            said = real.get(case.name, Seen("-"))
            rows.append([case.name, *(one.word for one in (*found.values(), said))])
            wrong += differences(case, found)
            if said not in (found["api"], Seen("-")):
                wrong.append(f"{case.name}: {DRY_RUN}: saw {said}, and embedded {found['api']}")
    print(table(rows), "", *wrong, f"{len(rows) - 1} files, {len(wrong)} with a difference", sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
