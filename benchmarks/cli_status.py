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
import statistics
from copy import deepcopy
from functools import partial

import msgspec

from benchmarks.cli_group import NAME, CommandRun, inplace, options_of, run_command
from benchmarks.controller_lab import NAMESPACE, Lab, open_lab
from benchmarks.controller_pods import PODS_PER_JOB, at_once, jobset, placed
from benchmarks.controller_status import pod_status
from inplace.common.kube.client import MERGE_PATCH
from inplace.common.kube.http.request import Request
from inplace.common.kube.resources import JOBSETS, PODS, KubeObject
from inplace.common.wire import names as wire

LATE = 2  # Pods that the gathering group waits for
Run = tuple[CommandRun, float, int]  # beside the command: the server's CPU time, and requests
_COUNTED = re.compile(r'^apiserver_request_total\{[^}]*resource="(?:jobsets|pods)"[^}]*\} (\d+)', re.MULTILINE)


async def main() -> None:
    """Run the benchmark."""
    options = options_of(__doc__, pods=5_000, rounds=5)
    async with open_lab() as lab:
        raw = await lab.client.create(JOBSETS, NAMESPACE, jobset(NAME, options.pods))
        pods = _pods(raw, options.pods)
        await at_once(lambda pod: _make(lab, pod), pods)
        names = [pod["metadata"]["name"] for pod in pods]
        for title, synced, deprecated, late in (("runs", 1, 0, 0), ("gathers", 1, 1, LATE)):
            await lab.client.patch(
                JOBSETS, NAMESPACE, NAME, {"status": wire.status_of_epochs(synced, deprecated)}, subresource="status"
            )
            epoch = deprecated + 1
            await at_once(partial(_announce, lab, epoch), names[: len(names) - late])
            runs = [await _run(lab) for _ in range(options.rounds)]
            _print(f"{options.pods:,} Pods, {title}", runs)


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


async def _run(lab: Lab) -> Run:
    """Run the command once."""
    before, used_s = await _requests(lab), lab.server_cpu_s()
    command = inplace("status", NAME, "-n", NAMESPACE)
    done = await asyncio.to_thread(run_command, command, lab.kubeconfig)
    return done, lab.server_cpu_s() - used_s, await _requests(lab) - before


async def _requests(lab: Lab) -> int:
    """Return how many requests for JobSets and Pods the server has answered."""
    text = (await lab.client.raw("GET", "/metrics", expects_json=False)).body.decode()
    return sum(int(count) for count in _COUNTED.findall(text))


def _print(title: str, runs: list[Run]) -> None:
    median, first_lines = statistics.median, runs[0][0].output.splitlines()[:2]
    wall_s, cpu_s = [done.wall_s for done, _, _ in runs], [done.cpu_s for done, _, _ in runs]
    print(f"{title}: {' · '.join(first_lines)}")
    print(
        f"  {len(runs)} rounds, medians: {median(wall_s):.2f} s from exec to exit (slowest {max(wall_s):.2f} s), "
        f"{median(cpu_s):.2f} s CPU of its own, {median(used_s for _, used_s, _ in runs):.2f} s CPU of the API server, "
        f"{max(requests for _, _, requests in runs)} requests",
        flush=True,
    )


if __name__ == "__main__":
    asyncio.run(main())
