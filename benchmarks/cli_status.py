"""
Measure the cost of `inplace status` on a real kube-apiserver: a JobSet of 5,000 Pods that runs, and one that gathers.

    python -m benchmarks.cli_status [--pods 5000] [--rounds 5]

Prints for each: seconds from exec to exit of the command, its own CPU, the API server's CPU, and the requests that the
server counted for JobSets and Pods. Only etcd and kube-apiserver run. This program writes the JobSet's status and the
Pods, as large as real ones (benchmarks/controller_pods.py).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import resource
import statistics
import subprocess
import sys
import time
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from benchmarks.controller_lab import NAMESPACE, REPOSITORY, TICKS_PER_S, Lab, open_lab
from benchmarks.controller_pods import PODS_PER_JOB, at_once, jobset, placed
from benchmarks.controller_status import pod_status
from inplace.common.kube.client import MERGE_PATCH
from inplace.common.kube.http.request import Request
from inplace.common.kube.resources import JOBSETS, PODS, KubeObject
from inplace.common.wire import names as wire

NAME = "train"
LATE = 2  # Pods that the gathering group waits for
_COUNTED = re.compile(r'^apiserver_request_total\{[^}]*resource="(?:jobsets|pods)"[^}]*\} (\d+)', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the command."""

    wall_s: float
    cpu_s: float
    server_cpu_s: float
    requests: int
    first_line: str


async def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
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
    """Run the command once, as a user does."""
    server, before = _server_pid(), await _requests(lab)
    ticks, used = _ticks(server), resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [
        sys.executable,
        "-m",
        "inplace.cli",
        "status",
        NAME,
        "-n",
        NAMESPACE,
        "--kubeconfig",
        str(lab.kubeconfig),
    ]
    began_s = time.monotonic()
    done = await asyncio.to_thread(subprocess.run, command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    wall_s = time.monotonic() - began_s
    assert done.returncode == 0, done.stderr
    now = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
    lines = done.stdout.splitlines()
    return Run(wall_s, cpu_s, _ticks(server) - ticks, await _requests(lab) - before, " · ".join(lines[:2]))


async def _requests(lab: Lab) -> int:
    """Return how many requests for JobSets and Pods the server has answered."""
    text = (await lab.client.raw("GET", "/metrics", expects_json=False)).body.decode()
    return sum(int(count) for count in _COUNTED.findall(text))


def _server_pid() -> int:
    """Return our own kube-apiserver's process: a child of this one."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and _parent(entry) == os.getpid() and b"kube-apiserver" in _command(entry):
            return int(entry.name)
    raise AssertionError("expected a kube-apiserver among this process's children, saw none")


def _parent(entry: Path) -> int:
    try:
        return int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _command(entry: Path) -> bytes:
    try:
        return (entry / "cmdline").read_bytes()
    except OSError:
        return b""


def _ticks(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def _print(title: str, runs: list[Run]) -> None:
    median = statistics.median
    print(f"{title}: {runs[0].first_line}")
    print(
        f"  {len(runs)} rounds, medians: {median(run.wall_s for run in runs):.2f} s from exec to exit "
        f"(slowest {max(run.wall_s for run in runs):.2f} s), {median(run.cpu_s for run in runs):.2f} s CPU of its own, "
        f"{median(run.server_cpu_s for run in runs):.2f} s CPU of the API server, "
        f"{max(run.requests for run in runs)} requests",
        flush=True,
    )


if __name__ == "__main__":
    asyncio.run(main())
