"""
An API server without controllers, and one controller as a process of its own: ours with deploy/rbac, or upstream's.

The server is a real kube-apiserver, or the simulator in a process of its own. The benchmark plays Job controller,
kubelets and agents as the administrator, whom API priority and fairness exempts; the controller is an ordinary
ServiceAccount.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import yaml

from benchmarks.api_backend import USER_AGENT, simulated_kubeconfigs, simulated_server
from inplace.common.kube.client import KubeClient
from inplace.common.kube.resources import NAMESPACES
from testbed.binaries import find_binaries
from testbed.component import cpu_seconds_of
from testbed.control_plane import ControlPlane
from testbed.kube_client import create, install_crd, kube_client
from testbed.ports import free_ports
from testbed.upstream.controller import upstream_controller
from testbed.waiting import until_ended

NAMESPACE = "bench"
ACCOUNT_NAMESPACE, ACCOUNT = "inplace-system", "inplace-controller"
REPOSITORY = Path(__file__).parents[1]
READY_S_MAX = 60.0  # a controller that lists 10,000 Pods on a busy machine
EXIT_S_MAX = 10.0  # its own bound is 8 s
POLL_S = 0.05
PROGRAM = (sys.executable, "-m", "inplace.controller")


@dataclass(frozen=True, slots=True)
class ControllerProcess:
    """The controller under measurement."""

    pid: int

    def cpu_s(self) -> float:
        """Return user plus system time so far."""
        return cpu_seconds_of(self.pid)

    def rss_mb(self, which: str = "VmRSS") -> float:
        """Return the resident memory now (VmRSS), or the most it ever was (VmHWM), in MB of 10^6 bytes."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(f"{which}:"):
                return int(line.split()[1]) * 1024 / 1e6
        raise AssertionError(f"expected {which} in /proc/{self.pid}/status, saw none")

    def reset_peak(self) -> None:
        """Let VmHWM begin anew; proc_pid_clear_refs(5)."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")


@dataclass(frozen=True, slots=True)
class Lab:
    """One API server.

    Args:
        client: the administrator's.
        kubeconfig: the controller's.
        server_cpu_s: user and system time of a real server so far.
    """

    client: KubeClient
    kubeconfig: Path
    server_cpu_s: Callable[[], float] = lambda: 0.0

    @asynccontextmanager
    async def controller(self, program: Sequence[str] = PROGRAM) -> AsyncIterator[ControllerProcess]:
        """Run the controller as deploy/ does, for all namespaces and with leader election; end it afterwards."""
        probes, metrics = (f"127.0.0.1:{port}" for port in free_ports(2))
        process = await asyncio.create_subprocess_exec(
            *(*program, "--kubeconfig", str(self.kubeconfig), "--log-level", "warning"),
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
            await until_ended(process, EXIT_S_MAX)


@asynccontextmanager
async def open_lab(backend: str = "real") -> AsyncIterator[Lab]:
    """Start a "real" or "simulator" API server with the CRD, deploy/rbac and a namespace."""
    async with (_real if backend == "real" else _simulator)() as lab:
        await install_crd(lab.client)
        rights = (REPOSITORY / "deploy" / "rbac" / "controller.yaml").read_text()
        await create(lab.client, yaml.safe_load_all(rights))
        await lab.client.create(NAMESPACES, None, {"metadata": {"name": NAMESPACE}})
        yield lab


@asynccontextmanager
async def open_upstream_lab() -> AsyncIterator[tuple[KubeClient, ControllerProcess]]:
    """Start a real API server with upstream's controller; yield the administrator's client and the controller."""
    async with (
        ControlPlane(find_binaries()) as plane,
        upstream_controller(plane) as component,
        kube_client(plane.kubeconfig, USER_AGENT) as client,
    ):
        await client.create(NAMESPACES, None, {"metadata": {"name": NAMESPACE}})
        yield client, ControllerProcess(component.pid())


@asynccontextmanager
async def _real() -> AsyncIterator[Lab]:
    async with ControlPlane(find_binaries()) as plane, kube_client(plane.kubeconfig, USER_AGENT) as client:
        await client.create(NAMESPACES, None, {"metadata": {"name": ACCOUNT_NAMESPACE}})
        kubeconfig = await plane.service_account_kubeconfig(ACCOUNT_NAMESPACE, ACCOUNT)
        yield Lab(client, kubeconfig, plane.apiserver_cpu_seconds)


@asynccontextmanager
async def _simulator() -> AsyncIterator[Lab]:
    with tempfile.TemporaryDirectory(prefix="inplace-bench-") as folder:
        async with simulated_server() as url:
            admin, account = simulated_kubeconfigs(Path(folder), url, ACCOUNT_NAMESPACE, ACCOUNT)
            async with kube_client(admin, USER_AGENT) as client:
                await client.create(NAMESPACES, None, {"metadata": {"name": ACCOUNT_NAMESPACE}})
                yield Lab(client, account)


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
