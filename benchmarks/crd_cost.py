"""
Measure what the schema inside Pod templates costs: our CRD, the same with opaque templates, and upstream's.

Each CRD gets real API servers of its own, in turn. The JobSet is examples/train.yaml. The server's CPU time for a write
includes admission and etcd's client, not etcd; it says more than the time on the wall, which other programs share.

    nice python -m benchmarks.crd_cost --json
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import yaml

from inplace.common.kube.resources import KubeObject
from testbed.binaries import find_binaries
from testbed.control_plane import ControlPlane
from testbed.crd import CRD, with_opaque_templates
from testbed.upstream.manifests import crd as upstream_crd
from tests.cluster.test_crd_real import DEFINITIONS, jobsets, until_served

EXAMPLE: Final = Path(__file__).parents[1] / "examples" / "train.yaml"
ROUNDS: Final = 3
WRITES: Final = 200


@dataclass(frozen=True, slots=True)
class Row:
    """
    One CRD; medians over the rounds.

    Args:
        crd: which one.
        crd_bytes: its JSON.
        create_cpu_ms: the server's CPU time for the creation of a JobSet.
        label_cpu_ms: for a change of a label.
        status_cpu_ms: for a write of a status.
        event_bytes: the JSON of the JobSet, which a watch of whole objects is sent.
    """

    crd: str
    crd_bytes: int
    create_cpu_ms: float
    label_cpu_ms: float
    status_cpu_ms: float
    event_bytes: int


def definitions() -> Mapping[str, Callable[[], KubeObject]]:
    """Return the CRDs that are compared."""

    def ours() -> KubeObject:
        document: KubeObject = yaml.safe_load(CRD.read_text())
        return document

    return {"opaque": lambda: with_opaque_templates(ours()), "ours": ours, "upstream": upstream_crd}


def manifest(number: int) -> KubeObject:
    """Return a JobSet."""
    documents: list[KubeObject] = list(yaml.safe_load_all(EXAMPLE.read_text()))
    (found,) = (document for document in documents if document["kind"] == "JobSet")
    return found | {"metadata": found["metadata"] | {"name": f"train-{number}", "namespace": "default"}}


async def measure_one(name: str, crd: KubeObject, writes: int) -> Row:
    """Return one round with one CRD."""
    async with ControlPlane(find_binaries()) as plane, plane.client() as api:
        await api.post(DEFINITIONS, crd)
        await until_served(api)
        path = f"{jobsets('default')}/train-0"

        async def cpu_ms(write: Callable[[int], Any]) -> float:
            used_s = plane.apiserver_cpu_seconds()
            for number in range(writes):
                await write(number)
            return (plane.apiserver_cpu_seconds() - used_s) / writes * 1e3

        created = await cpu_ms(lambda number: api.post(jobsets("default"), manifest(number)))
        labelled = await cpu_ms(lambda number: api.patch(path, {"metadata": {"labels": {"a": str(number)}}}))
        told = await cpu_ms(lambda number: api.patch(f"{path}/status", {"status": {"restarts": number + 1}}))
        size = len(await api.text("GET", path))
    return Row(name, len(json.dumps(crd)), created, labelled, told, size)


async def measure(rounds: int, writes: int) -> list[Row]:
    """Measure all CRDs in turn."""
    found: dict[str, list[Row]] = {name: [] for name in definitions()}
    for _ in range(rounds):
        for name, crd in definitions().items():
            found[name].append(await measure_one(name, crd(), writes))
    return [_medians(rows) for rows in found.values()]


def _medians(rows: list[Row]) -> Row:
    fields = [asdict(row) for row in rows]
    figures = {name: round(median(each[name] for each in fields), 2) for name in fields[0] if name.endswith("_ms")}
    return Row(**(fields[0] | figures))


def main() -> int:
    """Measure and print."""
    flags = argparse.ArgumentParser(prog="python -m benchmarks.crd_cost", description=__doc__)
    flags.add_argument("--json", action="store_true", help="print one JSON object")
    flags.add_argument("--rounds", type=int, default=ROUNDS)
    flags.add_argument("--writes", type=int, default=WRITES, help="writes of each kind in a round")
    options = flags.parse_args()
    rows = asyncio.run(measure(options.rounds, options.writes))
    if options.json:
        print(json.dumps({"rows": [asdict(row) for row in rows]}))
        return 0
    print(f"{'CRD':10}{'bytes':>9}{'create ms':>11}{'label ms':>10}{'status ms':>11}{'event bytes':>13}")
    for row in rows:
        costs = f"{row.create_cpu_ms:>11}{row.label_cpu_ms:>10}{row.status_cpu_ms:>11}"
        print(f"{row.crd:10}{row.crd_bytes:>9}{costs}{row.event_bytes:>13}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
