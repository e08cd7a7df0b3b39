"""
Measure an agent's start: from exec to its announcement visible on an API server.

Compared with a plain kubernetes_asyncio agent (benchmarks/baseline_agent.py), in turns within one run. Ours uses a
Pod's service account, the plain one a kubeconfig. The group is at epoch 1 and this Pod took part in it, so this is the
start in a group restart. Times end when a watch shows the annotation.

With `--upstream`, upstream's Go agent takes its turns too, for a JobSet that shows upstream's status. It reads its
namespace from one fixed path, so the benchmark begins again in a mount namespace where that path is the account's. The
API server's CPU time is then measured for every kind.

    python -m benchmarks.agent_start --json                       # a real kube-apiserver; needs Go once
    python -m benchmarks.agent_start --json --upstream            # needs root, or user namespaces
    python -m benchmarks.agent_start --json --backend simulator
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final
from urllib.request import urlopen

from benchmarks.api_backend import Backend, open_backend
from benchmarks.figures import Figures, flags
from inplace.common.kube.clock import LoopClock
from inplace.common.kube.http.request import Request
from inplace.common.kube.kubeconfig import read_kubeconfig
from inplace.common.kube.resources import JOBSETS, PODS
from inplace.common.kube.watch import watch_lines
from inplace.common.wire import names as wire
from testbed.go_programs import AGENT, upstream_version
from testbed.go_programs import UPSTREAM as UPSTREAM_PROGRAMS
from testbed.ports import free_ports

NAMESPACE, JOBSET = "bench", "train"
VISIBLE_S_MAX = 30.0  # an agent that needs longer is broken, not slow
SETTLE_S = 1.0  # after the announcement: lazy imports are done and memory is what a waiting agent keeps
FOLDER = Path(__file__).parent
# As in the image (Containerfile): isolated, without `site`, with two folders on the path.
LAUNCHER = "import sys; sys.path[:0] = {}; from inplace.agent.main import main; sys.exit(main())"
AGENTS = {
    "agent": ["-IS", "-c", LAUNCHER.format([str(FOLDER.parent), sysconfig.get_path("purelib")])],
    "baseline": ["-m", "benchmarks.baseline_agent"],
}
UPSTREAM = "upstream"
VARIABLE: Final = "INPLACE_BENCHMARK_HAS_MOUNTS"
ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
IDLE_S = 5.0  # in which the API server's own CPU time is measured


def figures_of(backend: str, runs: int) -> Figures:
    """Return the report of no starts yet."""
    return Figures(
        f"exec to visible annotation, {backend} API server, {runs} starts; upstream is {upstream_version()}",
        compared=[("agent", "baseline"), ("agent", UPSTREAM)],
        most={("agent / baseline", "ms"): 0.35, (f"agent / {UPSTREAM}", "ms"): 1.0},
        means=("server_cpu_ms",),
    )


def command(kind: str) -> list[str]:
    """Return the command line of an agent."""
    return [str(UPSTREAM_PROGRAMS.build() / AGENT)] if kind == UPSTREAM else [sys.executable, *AGENTS[kind]]


def jobset(pods: int) -> dict[str, Any]:
    """Return a JobSet of `pods` slots under InPlaceRestart."""
    template = {
        "spec": {
            "completionMode": "Indexed",
            "parallelism": pods,
            "completions": pods,
            "backoffLimit": 2**31 - 1,
            "podReplacementPolicy": "Failed",
            "template": {"spec": {"restartPolicy": "Never", "containers": [container()]}},
        }
    }
    return {
        "apiVersion": wire.API_VERSION,
        "kind": wire.KIND,
        "metadata": {"name": JOBSET},
        "spec": {
            "failurePolicy": {"maxRestarts": 1000, "restartStrategy": wire.IN_PLACE_RESTART},
            "replicatedJobs": [{"name": "workers", "replicas": 1, "template": template}],
        },
    }


def container() -> dict[str, Any]:
    """Return a container that is never run: no kubelet takes part."""
    return {"name": "worker", "image": "example.invalid/worker:1"}


def pod(name: str) -> dict[str, Any]:
    """Return a Pod that announced epoch 1, in the words of its agent."""
    words = wire.epoch_annotations(1)
    if name.startswith(UPSTREAM):
        words = {wire.ATTEMPT: words[wire.ATTEMPT]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": words},
        "spec": {"restartPolicy": "Never", "containers": [container()]},
    }


async def prepare(backend: Backend, pods: list[str]) -> None:
    """Create the JobSet, synced at epoch 1, and its Pods."""
    stored = await backend.client.create(JOBSETS, NAMESPACE, jobset(len(pods)))
    stored["status"] = {"restarts": 0} | wire.status_of_epochs(1, 0)
    await backend.client.replace(JOBSETS, NAMESPACE, JOBSET, stored, subresource="status")
    for name in pods:
        await backend.client.create(PODS, NAMESPACE, pod(name))


def environment(backend: Backend, account: Path | None, kind: str, name: str, port: int) -> dict[str, str]:
    """Return an agent's environment: a Pod's, with the service account that is mounted at `account`, if any."""
    found = {
        "PATH": os.environ["PATH"],
        "NAMESPACE": NAMESPACE,
        "POD_NAME": name,
        "JOBSET_NAME": JOBSET,
        "PREVIOUS_EPOCH": "1",
        "BARRIER_ADDRESS": "127.0.0.1",
        "BARRIER_PORT": str(port),
        "RESTART_POD_IN_PLACE_EXIT_CODE": "88",
    }
    if kind == UPSTREAM:
        found = {name: found[name] for name in ("PATH", "POD_NAME", "JOBSET_NAME")} | {"STARTUP_PROBE_PORT": str(port)}
    if kind == "baseline" or account is None:
        return found | {"KUBECONFIG": str(backend.agent_kubeconfig), "PYTHONPATH": str(FOLDER.parent)}
    to = read_kubeconfig(str(backend.agent_kubeconfig))
    return found | {
        "INPLACE_SERVICE_ACCOUNT_DIR": str(account),
        "KUBERNETES_SERVICE_HOST": to.host,
        "KUBERNETES_SERVICE_PORT": str(to.port),
    }


def mount_account(backend: Backend, account: Path) -> Path | None:
    """Write the agents' credentials as kubelet mounts them; None when the server speaks no TLS."""
    to = read_kubeconfig(str(backend.agent_kubeconfig))
    if not to.tls:
        return None
    (account / "token").write_text(to.token)
    (account / "namespace").write_text(NAMESPACE)
    (account / "ca.crt").write_text(to.ca_pem or Path(to.ca_file).read_text())
    return account


async def measure_start(backend: Backend, account: Path | None, kind: str, name: str, idle: float) -> dict[str, float]:
    """Start one agent for Pod `name`, wait until the watch of this process shows epoch 2 on it, and return figures.

    `idle` is the API server's CPU time for a second in which nothing happens.
    """
    (port,) = free_ports(1)
    requests_before = await backend.agent_requests()
    async with aclosing(announcements(backend, name)) as seen:
        await anext(seen)  # the watch is open BEFORE the agent starts
        words, server_cpu_s = command(kind), backend.server_cpu_s()
        began = time.perf_counter()
        process = await asyncio.create_subprocess_exec(
            *words,
            env=environment(backend, account, kind, name, port),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            async with asyncio.timeout(VISIBLE_S_MAX):
                while await anext(seen) != 2:
                    pass
            found = {"ms": (time.perf_counter() - began) * 1e3}
            await asyncio.sleep(SETTLE_S)
            found["rss_mb"] = rss_mb(process.pid)
            spent_s = backend.server_cpu_s() - server_cpu_s - idle * (time.perf_counter() - began)
            found["server_cpu_ms"] = spent_s * 1e3
            found["requests"] = await backend.agent_requests() - requests_before
            if kind == "agent":
                await asyncio.to_thread(scrape, port)
                found["rss_scraped_mb"] = rss_mb(process.pid)
            return found
        finally:
            process.kill()
            await process.wait()


def scrape(port: int) -> None:
    """Read the agent's metrics once, which loads what renders them."""
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=VISIBLE_S_MAX) as answer:
        assert b"inplace_agent_epoch 2" in answer.read()


async def announcements(backend: Backend, name: str) -> AsyncGenerator[int | None, None]:
    """Yield the epoch that Pod `name` shows, at first and at every change."""
    query = {"watch": "1", "fieldSelector": f"metadata.name={name}"}
    request = Request("GET", PODS.path(NAMESPACE, query=query), backend.client.headers)
    async with aclosing(watch_lines(backend.client.transport, request, clock=LoopClock())) as lines:
        async for line in lines:
            yield wire.epoch_of_pod(json.loads(line)["object"]["metadata"].get("annotations", {}))


def rss_mb(pid: int) -> float:
    """Return the resident memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024


async def idle_cpu(backend: Backend) -> float:
    """Return the API server's CPU time for a second in which nothing happens."""
    began_s = backend.server_cpu_s()
    await asyncio.sleep(IDLE_S)
    return (backend.server_cpu_s() - began_s) / IDLE_S


async def run(backend_name: str, runs: int, account_folder: Path | None) -> Figures:
    """Measure `runs` starts of each kind, in turns, after one warm-up each; upstream's with its folder only."""
    kinds = [*AGENTS, *([UPSTREAM] if account_folder is not None else [])]
    names = {kind: [f"{kind}-{i}" for i in range(runs + 1)] for kind in kinds}
    figures = figures_of(backend_name, runs)
    async with open_backend(backend_name, NAMESPACE) as backend:
        await prepare(backend, [name for group in names.values() for name in group])
        with tempfile.TemporaryDirectory(prefix="inplace-bench-") as folder:
            account = mount_account(backend, account_folder or Path(folder))
            idle = await idle_cpu(backend)
            for i in range(runs + 1):
                for kind in kinds:
                    measured = await measure_start(backend, account, kind, names[kind][i], idle)
                    if i:
                        figures.add(kind, measured)
    return figures


def service_account_folder(module: str) -> Path:
    """Return the one folder at which upstream's agent looks for its account, empty.

    Outside of a mount namespace of its own, begin again with this module and these arguments in one, with an empty file
    system where the machine has /run. Nobody outside sees that, and it ends with the process.
    """
    if VARIABLE not in os.environ:
        user = () if os.geteuid() == 0 else ("--map-root-user",)
        words = ("unshare", "--mount", *user, "--", sys.executable, "-m", module, *sys.argv[1:])
        os.execvpe(words[0], words, os.environ | {VARIABLE: "1"})  # noqa: S606 - no shell is wanted
    run = ACCOUNT.parents[2].resolve()
    subprocess.run(("mount", "-t", "tmpfs", "tmpfs", str(run)), check=True)
    ACCOUNT.mkdir(parents=True)
    return ACCOUNT


def main() -> None:
    """Measure and print."""
    parser = flags(__doc__, runs=10)
    parser.add_argument("--backend", choices=("real", "simulator"), default="real")
    parser.add_argument("--upstream", action="store_true", help="compare with upstream's Go agent as well")
    options = parser.parse_args()
    if options.upstream and options.backend != "real":
        parser.error("--upstream: expected a real API server, with which alone upstream's agent can speak TLS")
    account = service_account_folder(__spec__.name) if options.upstream else None
    asyncio.run(run(options.backend, options.runs, account)).show(options)


if __name__ == "__main__":
    main()
