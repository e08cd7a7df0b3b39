"""
Measure the cost of `inplace status` on a real kube-apiserver: a JobSet of 5,000 Pods that runs, and one that gathers.

    python -m benchmarks.cli_status [--pods 5000] [--rounds 5]

Prints for each: seconds from exec to exit of the command, its own CPU, the API server's CPU, and the requests that the
server counted for JobSets and Pods. Only etcd and kube-apiserver run. This program writes the JobSet's status and the
Pods, as large as real ones (benchmarks/controller_pods.py).
"""

from __future__ import annotations

import asyncio
import re
import sys
from copy import deepcopy
from functools import partial

import msgspec

from benchmarks.cli_group import NAME, inplace, run_command
from benchmarks.controller_lab import NAMESPACE, Lab, open_lab
from benchmarks.controller_pods import PODS_PER_JOB, at_once, jobset, placed, pod_status
from benchmarks.figures import Figures, flags
from inplace.common.kube.client import MERGE_PATCH
from inplace.common.kube.http.request import Request
from inplace.common.kube.resources import JOBSETS, PODS, KubeObject
from inplace.common.wire import names as wire

LATE = 2  # Pods that the gathering group waits for
_COUNTED = re.compile(r'^apiserver_request_total\{[^}]*resource="(?:jobsets|pods)"[^}]*\} (\d+)', re.MULTILINE)


async def measure(pods: int, rounds: int) -> Figures:
    """Make the group, and run the command while it runs and while it gathers."""
    figures = Figures(f"`inplace status` of {pods:,} Pods, {rounds} rounds")
    async with open_lab() as lab:
        raw = await lab.client.create(JOBSETS, NAMESPACE, jobset(NAME, pods))
        made = _pods(raw, pods)
        await at_once(lambda pod: _make(lab, pod), made)
        names = [pod["metadata"]["name"] for pod in made]
        for title, synced, deprecated, late in (("runs", 1, 0, 0), ("gathers", 1, 1, LATE)):
            await lab.client.patch(
                JOBSETS, NAMESPACE, NAME, {"status": wire.status_of_epochs(synced, deprecated)}, subresource="status"
            )
            epoch = deprecated + 1
            await at_once(partial(_announce, lab, epoch), names[: len(names) - late])
            for _ in range(rounds):
                figures.add(title, await _run(lab))
    return figures


def _pods(raw: KubeObject, count: int) -> list[KubeObject]:
    """Return the Pods as the Job controller and the scheduler leave them."""
    per_job, made = min(count, PODS_PER_JOB), []
    template = raw["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    for number in range(count):
        job, index = divmod(number, per_job)
        labels = {
            wire.JOBSET_NAME: NAME,
            wire.JOBSET_UID: raw["metadata"]["uid"],
            wire.REPLICATED_JOB_NAME: "workers",
            wire.JOB_INDEX: str(job),
            wire.JOB_COMPLETION_INDEX: str(index),
        }
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": f"{NAME}-workers-{job}", "uid": f"job-{job}"}
        metadata = {
            "name": f"{NAME}-workers-{job}-{index}-x{number:04d}",
            "labels": labels,
            "annotations": labels,
            "ownerReferences": [owner | {"controller": True}],
        }
        made.append({"metadata": metadata, "spec": placed(deepcopy(template["spec"]))})
    return made


async def _make(lab: Lab, pod: KubeObject) -> None:
    name = pod["metadata"]["name"]
    await _send(lab, "POST", PODS.path(NAMESPACE), pod, "application/json")
    status = {"status": pod_status(name, 1, running=True)}
    await _send(lab, "PATCH", PODS.path(NAMESPACE, name, subresource="status"), status, MERGE_PATCH)


async def _announce(lab: Lab, epoch: int, name: str) -> None:
    patch = {"metadata": {"annotations": wire.epoch_annotations(epoch)}}
    await _send(lab, "PATCH", PODS.path(NAMESPACE, name), patch, MERGE_PATCH)


async def _send(lab: Lab, method: str, path: str, body: KubeObject, kind: str) -> None:
    headers = lab.client.headers | {"content-type": kind}
    await lab.client.send(Request(method, path, headers, msgspec.json.encode(body)), timeout_s=60.0)


async def _run(lab: Lab) -> dict[str, float]:
    """Run the command once."""
    before, used_s = await _requests(lab), lab.server_cpu_s()
    done = await asyncio.to_thread(run_command, inplace("status", NAME, "-n", NAMESPACE), lab.kubeconfig)
    server = {"server_cpu_s": lab.server_cpu_s() - used_s, "requests": await _requests(lab) - before}
    print(" · ".join(done.output.splitlines()[:2]), file=sys.stderr)
    return done.figures() | server


async def _requests(lab: Lab) -> int:
    """Return how many requests for JobSets and Pods the server has answered."""
    text = (await lab.client.raw("GET", "/metrics", expects_json=False)).body.decode()
    return sum(int(count) for count in _COUNTED.findall(text))


def main() -> None:
    """Measure and print."""
    options = flags(__doc__, pods=5_000, rounds=5).parse_args()
    asyncio.run(measure(options.pods, options.rounds)).show(options)


if __name__ == "__main__":
    main()
