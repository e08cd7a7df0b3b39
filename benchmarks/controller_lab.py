"""
A real kube-apiserver without controllers, and our controller beside it as a process of its own, with deploy/rbac.

The benchmark plays Job controller, kubelets and agents as the administrator, whom API priority and fairness exempts;
the controller is an ordinary ServiceAccount.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import yaml

from benchmarks.api_backend import USER_AGENT, Backend
from common.kube.client import KubeClient
from common.kube.clock import LoopClock
from common.kube.errors import AlreadyExists
from common.kube.resources import NAMESPACES, Resource
from controller.credentials import load_credentials
from controller.transport import AiohttpTransport
from tests.cluster.binaries import find_binaries
from tests.cluster.control_plane import ControlPlane
from tests.cluster.crd import install_crd

NAMESPACE = "bench"
REPOSITORY = Path(__file__).parents[1]
READY_S_MAX = 60.0  # a controller that lists 10,000 Pods on a busy machine
EXIT_S_MAX = 10.0  # its own bound is 8 s
POLL_S = 0.05
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class ControllerProcess:
    """The controller under measurement."""

    pid: int

    def cpu_s(self) -> float:
        """Return user plus system time so far; proc_pid_stat(5), fields 14 and 15."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_S

    def rss_mb(self, which: str = "VmRSS") -> float:
        """Return the resident memory now (VmRSS), or the most it ever was (VmHWM), in MB of 10^6 bytes."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(f"{which}:"):
                return int(line.split()[1]) * 1024 / 1e6
        raise AssertionError(f"expected {which} in /proc/{self.pid}/status, saw none")


@dataclass(frozen=True, slots=True)
class Lab:
    """One API server.

    Args:
        client: the administrator's.
        kubeconfig: the controller's.
    """

    client: KubeClient
    kubeconfig: Path

    @asynccontextmanager
    async def controller(self) -> AsyncIterator[ControllerProcess]:
        """Run the controller as deploy/ would, all namespaces and leader election included; end it afterwards."""
        probes, metrics = (f"127.0.0.1:{Backend.free_port()}" for _ in range(2))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "controller", "--kubeconfig", str(self.kubeconfig), "--log-level", "warning"),
            *("--leader-elect-namespace", "inplace-system", "--probe-bind-address", probes),
            *("--metrics-bind-address", metrics),
            cwd=REPOSITORY,
        )
        try:
            await _ready(probes, metrics)
            yield ControllerProcess(process.pid)
        finally:
            with suppress(ProcessLookupError):
                process.terminate()
            try:
                async with asyncio.timeout(EXIT_S_MAX):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()


@asynccontextmanager
async def open_lab() -> AsyncIterator[Lab]:
    """Start an API server with the CRD, deploy/rbac and a namespace."""
    async with ControlPlane(find_binaries()) as plane:
        credentials = await load_credentials(str(plane.kubeconfig), clock=LoopClock())
        async with AiohttpTransport(credentials) as transport:
            client = KubeClient(transport, user_agent=USER_AGENT, field_manager=USER_AGENT)
            await install_crd(client)
            for document in yaml.safe_load_all((REPOSITORY / "deploy" / "rbac" / "controller.yaml").read_text()):
                await _create(client, document)
            await client.create(NAMESPACES, None, {"metadata": {"name": NAMESPACE}})
            yield Lab(client, await plane.service_account_kubeconfig("inplace-system", "inplace-controller"))


async def _create(client: KubeClient, document: dict[str, object]) -> None:
    """Create what a manifest describes."""
    group, _, version = str(document["apiVersion"]).rpartition("/")
    kind, metadata = str(document["kind"]), document["metadata"]
    assert isinstance(metadata, dict)
    resource = Resource(group, version, f"{kind.lower()}s", kind, "namespace" in metadata)
    with suppress(AlreadyExists):
        await client.create(resource, metadata.get("namespace"), document)


async def _ready(probes: str, metrics: str) -> None:
    """Return when the controller leads with full caches."""
    leads = b'leader_election_master_status{name="inplace-controller"} 1.0'
    async with asyncio.timeout(READY_S_MAX):
        while True:
            if leads in await _get(metrics, "/metrics") and b" 200 " in (await _get(probes, "/readyz"))[:16]:
                return
            await asyncio.sleep(POLL_S)


async def _get(address: str, path: str) -> bytes:
    """Return a whole answer of one of the controller's ports; nothing while it does not listen."""
    host, _, port = address.partition(":")
    try:
        reader, writer = await asyncio.open_connection(host, port)
    except OSError:
        return b""
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nhost: bench\r\nconnection: close\r\n\r\n".encode())
        return await reader.read()
    finally:
        writer.close()
