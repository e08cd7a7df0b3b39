"""
An API server to measure against: a real kube-apiserver, or the embedded one.

Either comes with the CRD, a namespace and a kubeconfig for the agents' ServiceAccount, and counts that account's
requests. `simulated_server` serves the embedded one from a process of its own, so that its work does not slow down the
program that measures.

    python -m benchmarks.api_backend      # that process: prints its URL, and ends when its standard input does
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from inplace.common.kube.client import KubeClient
from inplace.common.kube.clock import LoopClock
from inplace.common.kube.resources import NAMESPACES, KubeObject
from inplace.simulator.apiserver import ApiServer, ApiServerOptions, HttpFront
from inplace.simulator.cluster.access import kubeconfig_text
from testbed.kube_client import create, install_crd, kube_client

ACCOUNT = "agents"
USER_AGENT = "inplace-benchmark"


@dataclass(frozen=True, slots=True)
class Backend:
    """A running API server.

    Args:
        client: the administrator's.
        agent_kubeconfig: an agent's KUBECONFIG.
        agent_requests: counts the requests that agents made so far.
        server_cpu_s: user and system time of a real server so far; the embedded one has none of its own.
    """

    client: KubeClient
    agent_kubeconfig: Path
    agent_requests: Callable[[], Awaitable[int]]
    server_cpu_s: Callable[[], float] = lambda: 0.0


@asynccontextmanager
async def open_backend(name: str, namespace: str) -> AsyncIterator[Backend]:
    """Start the "real" or the "simulator" API server with CRD, namespace and agents' account."""
    async with (_real if name == "real" else _simulator)(namespace) as backend:
        yield backend


@asynccontextmanager
async def _simulator(namespace: str) -> AsyncIterator[Backend]:
    server = ApiServer(clock=LoopClock(), rng=Random(1), options=ApiServerOptions())
    front = HttpFront(server)
    url = await front.start()
    with tempfile.TemporaryDirectory(prefix="inplace-bench-") as folder:
        admin, agents = simulated_kubeconfigs(Path(folder), url, namespace, ACCOUNT)

        async def count() -> int:
            return server.requests.total() - server.requests.of(family=USER_AGENT)

        try:
            async with kube_client(admin, USER_AGENT) as client:
                await prepare_cluster(client, namespace)
                yield Backend(client, agents, count)
        finally:
            await front.stop()


def simulated_kubeconfigs(folder: Path, url: str, namespace: str, account: str) -> tuple[Path, Path]:
    """Write the administrator's kubeconfig for an embedded server, and a ServiceAccount's; return their paths."""
    files = folder / "admin", folder / account
    for file, user in zip(files, ("admin", f"system:serviceaccount:{namespace}:{account}"), strict=True):
        file.write_text(kubeconfig_text(url, user))
    return files


@asynccontextmanager
async def _real(namespace: str) -> AsyncIterator[Backend]:
    from testbed.binaries import find_binaries
    from testbed.control_plane import ControlPlane

    with tempfile.TemporaryDirectory(prefix="inplace-bench-") as folder:
        policy, audit = Path(folder, "policy.json"), Path(folder, "audit.log")
        policy.write_text(json.dumps(_audit_policy(namespace)))
        flags = (f"--audit-policy-file={policy}", f"--audit-log-path={audit}")

        async def count() -> int:
            return len(audit.read_text().splitlines()) if audit.exists() else 0

        async with (
            ControlPlane(find_binaries(), apiserver_flags=flags) as plane,
            kube_client(plane.kubeconfig, USER_AGENT) as client,
        ):
            await prepare_cluster(client, namespace)
            kubeconfig = await plane.service_account_kubeconfig(namespace, ACCOUNT)
            yield Backend(client, kubeconfig, count, plane.apiserver_cpu_seconds)


async def prepare_cluster(client: KubeClient, namespace: str) -> None:
    """Create the namespace, the CRD and the agents' permissions; return when JobSets are served."""
    await client.create(NAMESPACES, None, {"metadata": {"name": namespace}})
    await install_crd(client)
    await create(client, _permissions(namespace))


def _permissions(namespace: str) -> list[KubeObject]:
    """Return what an agent may do: watch JobSets, patch Pods. The baseline also reads."""
    group = "rbac.authorization.k8s.io"
    rules = [
        {"apiGroups": ["jobset.x-k8s.io"], "resources": ["jobsets"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["patch"]},
    ]
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace}
    reference = {"apiGroup": group, "kind": "Role", "name": ACCOUNT}
    head = {"apiVersion": f"{group}/v1", "metadata": {"name": ACCOUNT, "namespace": namespace}}
    return [
        head | {"kind": "Role", "rules": rules},
        head | {"kind": "RoleBinding", "roleRef": reference, "subjects": [subject]},
    ]


def _audit_policy(namespace: str) -> dict[str, Any]:
    """Return a policy that logs one line for each request of the agents' account, when it arrives."""
    return {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["ResponseStarted", "ResponseComplete", "Panic"],
        "rules": [{"level": "Metadata", "users": [f"system:serviceaccount:{namespace}:{ACCOUNT}"]}, {"level": "None"}],
    }


async def _serve() -> None:
    gc.disable()  # among 100,000 Pods a collection stops the server for seconds; no real one is stopped so
    front = HttpFront(ApiServer(clock=LoopClock(), rng=Random(1), options=ApiServerOptions()))
    print(await front.start(), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await front.stop()


@asynccontextmanager
async def simulated_server() -> AsyncIterator[str]:
    """Start the server, and yield its URL."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.api_backend", stdin=pipe, stdout=pipe
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield (await process.stdout.readline()).decode().strip()
    finally:
        process.stdin.close()
        await process.wait()


if __name__ == "__main__":
    asyncio.run(_serve())
