"""Print a table: every file of `manifests/` and what each tool does with it; exit code 1 where that is not expected."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from images.build_once import MissingComponent
from inplace.common.kube.client import KubeClient
from testbed.binaries import find_binaries
from testbed.control_plane import ControlPlane
from tests.cases.case import COLUMNS, OTHER_NAMESPACE, Case, Seen, cases, creation, differences, seen, seen_by_api
from tests.cluster.test_crd_real import install
from tests.http_transport import transport_for

DRY_RUN = "kube-apiserver"


async def dry_runs() -> dict[str, Seen]:
    """Return what a kube-apiserver says of each file; {} where none is built (`make cluster`)."""
    try:
        control_plane = ControlPlane(find_binaries())
    except MissingComponent as error:
        print(f"{DRY_RUN}: left out: {error}", file=sys.stderr)
        return {}
    async with control_plane:
        return await ask(control_plane)


async def ask(control_plane: ControlPlane) -> dict[str, Seen]:
    """Return what this kube-apiserver says of each file."""
    async with control_plane.client() as api:
        await install(api)
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OTHER_NAMESPACE}}
        await api.post("/api/v1/namespaces", namespace)
    transport = transport_for(control_plane.kubeconfig)
    client = KubeClient(transport, user_agent="cases", field_manager="cases")
    try:
        return {
            case.name: await seen_by_api(case.file, lambda where, jobset: creation(client, where, jobset))
            for case in cases()
        }
    finally:
        await transport.close()


def _row(case: Case, found: dict[str, Seen], real: Seen | None) -> list[str]:
    words = {column: one.word for column, one in found.items()} | {DRY_RUN: real.word if real else "-"}
    expected = {**case.expected, DRY_RUN: case.expected["api"]}
    columns = (*COLUMNS, DRY_RUN)
    return [
        case.name,
        *(
            words[one] if words[one] in (expected[one], "-") else f"{words[one]}, not {expected[one]}"
            for one in columns
        ),
    ]


def main() -> int:
    """Print the table and the differences."""
    real = asyncio.run(dry_runs())
    rows, wrong = [["file", *COLUMNS, DRY_RUN]], []
    with TemporaryDirectory() as folder:
        for case in cases():
            found = seen(case, Path(folder))
            rows.append(_row(case, found, real.get(case.name)))
            wrong += differences(case, found)
            if case.name in real and real[case.name].word != case.expected["api"]:
                wrong.append(f"{case.name}: {DRY_RUN}: expected {case.expected['api']}, saw {real[case.name]}")
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())
    print("", *wrong, f"{len(rows) - 1} files, {len(wrong)} with a difference", sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
