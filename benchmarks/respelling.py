"""
Measure the cost of the policy of deploy/admission/immutable.yaml for an update with another spelling of templates.

A real kube-apiserver gets updates of two JobSets, with the policy and then without it: examples/train.yaml as its
author and as a client with Go types writes it, in turns; and one with 900 environment variables whose empty value is
written and left out, in turns. The server's CPU time says what an update costs; the time on the wall depends on
what else the machine does.

    nice python -m benchmarks.respelling --json
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import yaml

from inplace.common.kube.resources import KubeObject
from testbed.api_client import ApiClient
from testbed.binaries import find_binaries
from testbed.control_plane import ControlPlane
from tests.cluster.test_admission_real import ADMISSION, install_policies, until, wait_until_active
from tests.cluster.test_crd_real import install, jobsets, refusal
from tests.controller.manifests import changed
from tests.deploy.admission import ABOUT_JOBSETS, policies

EXAMPLE: Final = Path(__file__).parents[1] / "examples" / "train.yaml"
POLICY: Final = "immutable.jobset.x-k8s.io"
FIELDS: Final = 900
RUNS: Final = 3


@dataclass(frozen=True, slots=True)
class Row:
    """One run over one JobSet.

    Args:
        update: the part with another spelling.
        plain_cpu_ms: the server's CPU time for an update without the policy.
        guarded_cpu_ms: with it.
        ratio: of the two.
        plain_ms: the median time of an update without the policy.
        guarded_ms: with it.
    """

    update: str
    plain_cpu_ms: float
    guarded_cpu_ms: float
    ratio: float
    plain_ms: float
    guarded_ms: float


def spellings(fields: int) -> dict[str, tuple[KubeObject, KubeObject]]:
    """Return pairs of manifests, by description."""
    documents: list[KubeObject] = list(yaml.safe_load_all(EXAMPLE.read_text()))
    (plain,) = (document for document in documents if document["kind"] == "JobSet")
    plain["metadata"]["name"] = "usual"
    typed = deepcopy(plain)
    job = typed["spec"]["replicatedJobs"][0]["template"]
    job["metadata"] = {"creationTimestamp": None}
    pods = job["spec"]["template"]
    pods.setdefault("metadata", {})["creationTimestamp"] = None
    for container in pods["spec"]["containers"]:
        container.setdefault("resources", {})
    return {
        EXAMPLE.name: (plain, typed),
        f"{fields} fields": (_with_env(plain, fields, {"value": ""}), _with_env(plain, fields, {})),
    }


def _with_env(manifest: KubeObject, count: int, spelled: dict[str, Any]) -> KubeObject:
    found = deepcopy(manifest)
    found["metadata"]["name"] = "many"
    container = found["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0]
    container["env"] = [{"name": f"E{number}"} | spelled for number in range(count)]
    return found


async def update_ms(
    plane: ControlPlane, api: ApiClient, manifests: Sequence[KubeObject], updates: int
) -> tuple[float, float]:
    """Return the server's CPU time for an update from one spelling to the other, and the median time of all."""
    path = f"{jobsets('default')}/{manifests[0]['metadata']['name']}"
    taken = []
    used_s = plane.apiserver_cpu_seconds()
    for number in range(updates):
        metadata = (await api.get(path))["metadata"]
        body = manifests[(number + 1) % 2] | {"metadata": metadata}
        started = time.perf_counter()
        await api.text("PUT", path, body=body)
        taken.append(time.perf_counter() - started)
    return (plane.apiserver_cpu_seconds() - used_s) / updates * 1e3, median(taken) * 1e3


async def measure(updates: int) -> list[Row]:
    """Measure all JobSets, RUNS times with the policy and as often without it."""
    pairs = spellings(FIELDS)
    async with ControlPlane(find_binaries()) as plane, plane.client() as api:
        await install(api)
        await install_policies(api, policies(*ABOUT_JOBSETS))
        await wait_until_active(api)
        for one, _ in pairs.values():
            await api.post(jobsets("default"), one)
        guarded = [
            (name, await update_ms(plane, api, pair, updates)) for name, pair in pairs.items() for _ in range(RUNS)
        ]
        await _without_the_policy(api, pairs[EXAMPLE.name][0])
        plain = [await update_ms(plane, api, pair, updates) for pair in pairs.values() for _ in range(RUNS)]
    return [
        Row(name, *(round(value, 1) for value in (before[0], after[0], after[0] / before[0], before[1], after[1])))
        for (name, after), before in zip(guarded, plain, strict=True)
    ]


async def _without_the_policy(api: ApiClient, manifest: KubeObject) -> None:
    """Delete its binding, and wait until a change that it forbids is accepted."""
    await api.delete(f"{ADMISSION}/validatingadmissionpolicybindings/{POLICY}")
    path = f"{jobsets('default')}/{manifest['metadata']['name']}"
    worker = "spec.replicatedJobs.0.template.spec.template.spec.containers.0"

    async def is_gone() -> bool:
        body = changed(await api.get(path), f"{worker}.image", "another")
        return await refusal(api.text("PUT", path, body=body, query={"dryRun": "All"})) is None

    await until(is_gone)


def main() -> int:
    """Measure and print."""
    flags = argparse.ArgumentParser(prog="python -m benchmarks.respelling", description=__doc__)
    flags.add_argument("--json", action="store_true", help="print one JSON object")
    flags.add_argument("--updates", type=int, default=20, help="number of updates in each run")
    options = flags.parse_args()
    rows = asyncio.run(measure(options.updates))
    if options.json:
        print(json.dumps({"rows": [asdict(row) for row in rows]}))
        return 0
    print(f"{'update':14}{'plain CPU ms':>14}{'guarded CPU ms':>16}{'ratio':>7}{'plain ms':>10}{'guarded ms':>12}")
    for row in rows:
        cpu = f"{row.plain_cpu_ms:>14}{row.guarded_cpu_ms:>16}{row.ratio:>7}"
        print(f"{row.update:14}{cpu}{row.plain_ms:>10}{row.guarded_ms:>12}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
