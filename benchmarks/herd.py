"""
Start a whole group at one instant against a default kube-apiserver: rejections, and time until the last is ready.

Real agents (`agent.agent`), each with TLS connections of its own; with and without deploy/apf, with and without
slots, in turns within one run. Compared with the same agents admitted only as fast as the server can work (`capacity`:
a closed loop with the best concurrency that was found), and with agents that send the requests of a plain
kubernetes_asyncio agent and end where it ends. Server and clients share the machine: read the ratios, and the CPU of
both.

    python -m benchmarks.herd --json                # 10 rounds of each; needs Go once
    python -m benchmarks.herd --json --rounds 3
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import statistics
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random

import yaml

from benchmarks.agent_start import jobset, pod
from benchmarks.api_backend import ACCOUNT, USER_AGENT, prepare_cluster
from benchmarks.figures import Figures, flags
from benchmarks.herd_clients import READY_S_MAX, Tally, Task, pod_name, raise_file_limit
from inplace.agent.announce.jobset_requests import announcement_request
from inplace.agent.settings.config import AgentConfig
from inplace.common.kube.client import KubeClient
from inplace.common.kube.http.http1 import Http1Transport
from inplace.common.kube.http.request import Request
from inplace.common.kube.kubeconfig import read_kubeconfig
from inplace.common.kube.resources import JOBSETS, PODS, Resource
from inplace.common.wire import names as wire
from testbed.binaries import find_binaries
from testbed.control_plane import ControlPlane
from testbed.kube_client import install_crd, kube_client
from testbed.waiting import eventually, until_ended

NAMESPACE, JOBSET = "bench", "train"
APF = Path(__file__).parents[1] / "deploy" / "apf" / "flowcontrol.yaml"
AGENTS_SCHEMA, DEFAULT_SCHEMA = "inplace-agents", "service-accounts"
GROUP = "flowcontrol.apiserver.k8s.io"
KINDS = {
    "FlowSchema": Resource(GROUP, "v1", "flowschemas", "FlowSchema", namespaced=False),
    "PriorityLevelConfiguration": Resource(GROUP, "v1", "prioritylevelconfigurations", "", namespaced=False),
}
CONCURRENCIES = (4, 8, 16, 32, 64)  # of which the closed loop takes the best
CREATES_AT_ONCE = 16
PREPARED_S_MAX = 120.0  # for the clients to be ready
ANSWER_S_MAX = 30.0  # of one request
EXIT_S_MAX = 5.0  # of an idle client process
GO_S = 0.2  # from the order to the start, so that all processes have read it
SETTLE_S = 12.0  # a server that has just begun is busy with itself, and shares its seats out every 10 s


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to start a group.

    Args:
        apf: deploy/apf is applied.
        slots: agents start in slots.
        obvious: an obvious kubernetes_asyncio agent's requests instead of ours.
        capacity: at most as many at a time as the server does best with.
    """

    name: str
    apf: bool
    slots: bool = False
    obvious: bool = False
    capacity: bool = False


CAPACITY = Variant("capacity", apf=True, capacity=True)
WITH_APF = Variant("with apf, no slots", apf=True)  # the setting that deploy/apf recommends
WITHOUT = Variant("without apf, slots", apf=False, slots=True)  # the defaults
VARIANTS = (
    CAPACITY,
    WITH_APF,
    WITHOUT,
    Variant("with apf, slots", apf=True, slots=True),
    Variant("without apf, no slots", apf=False),
    Variant("obvious agent, without apf", apf=False, obvious=True),
    Variant("obvious agent, with apf", apf=True, obvious=True),
)


@dataclass(frozen=True, slots=True)
class Round:
    """What one start of the group took.

    Args:
        seconds: until the last agent had announced and watched; median_s is the median agent's.
        rejected: 429 answers, as the clients counted them.
        rejected_by_server: as the server did.
        server_cpu_s, client_cpu_s: of kube-apiserver, and of all client processes together.
        seats: what the default level had at the beginning.
        failures: other failures, by name.
    """

    seconds: float
    median_s: float
    rejected: int
    rejected_by_server: int
    requests: int
    server_cpu_s: float
    client_cpu_s: float
    seats: int
    failures: dict[str, int] = field(default_factory=dict)

    def figures(self, agents: int) -> dict[str, float]:
        """Return the figures of the report; a failure has a figure of its own."""
        return {
            "s": self.seconds,
            "median_agent_s": self.median_s,
            "rejected": self.rejected,
            "miscounted": abs(self.rejected - self.rejected_by_server),
            "requests_per_agent": self.requests / agents,
            "server_cpu_ms_per_agent": 1e3 * self.server_cpu_s / agents,
            "client_cpu_ms_per_agent": 1e3 * self.client_cpu_s / agents,
            "seats": self.seats,
        } | {f"failed, {name}": count for name, count in self.failures.items()}


class HerdBench:
    """One control plane with a group on it."""

    def __init__(self, plane: ControlPlane, client: KubeClient, agents: int, processes: int) -> None:
        self.plane = plane
        self._client = client
        self._agents = agents
        self._processes = processes
        self._kubeconfig = ""
        self._synced = 0
        self._settle_s = SETTLE_S
        self._applied = False

    async def prepare(self, settle_s: float) -> None:
        """Create the JobSet and its Pods."""
        self._settle_s = settle_s
        await prepare_cluster(self._client, NAMESPACE)
        self._kubeconfig = str(await self.plane.service_account_kubeconfig(NAMESPACE, ACCOUNT))
        await self._client.create(JOBSETS, NAMESPACE, jobset(self._agents))
        turns = asyncio.Semaphore(CREATES_AT_ONCE)

        async def create(index: int) -> None:
            async with turns:
                await self._client.create(PODS, NAMESPACE, pod(pod_name(index)))

        async with asyncio.TaskGroup() as group:
            for index in range(self._agents):
                group.create_task(create(index))

    async def measure(self, variant: Variant, concurrency: int) -> Round:
        """Start the group once, on a server that has just begun and so lends no seats yet: as on an idle cluster."""
        await self.plane.restart_apiserver()
        await install_crd(self._client)
        await self._apply(variant.apf)
        self._synced += 1
        stored = await self._client.get(JOBSETS, NAMESPACE, JOBSET)
        stored["status"] = {"restarts": 0} | wire.status_of_epochs(self._synced, 0)
        await self._client.replace(JOBSETS, NAMESPACE, JOBSET, stored, subresource="status")
        async with AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(_client_process()) for _ in range(self._processes)]
            share = -(-self._agents // self._processes)
            for number, process in enumerate(clients):
                first = number * share
                task = Task(
                    obvious=variant.obvious,
                    first=first,
                    count=min(share, self._agents - first),
                    agents=self._agents,
                    slots=variant.slots,
                    concurrency=max(1, concurrency // self._processes) if variant.capacity else 0,
                    synced=self._synced,
                    kubeconfig=self._kubeconfig,
                    namespace=NAMESPACE,
                    jobset=JOBSET,
                )
                _write(process, json.dumps(asdict(task)))
            async with asyncio.timeout(PREPARED_S_MAX):
                for process in clients:
                    await _read(process, "ready")
            await asyncio.sleep(self._settle_s)
            before, cpu_s = await self._server_metrics(), self.plane.apiserver_cpu_seconds()
            go_s = time.monotonic() + GO_S
            for process in clients:
                _write(process, str(go_s))
            async with asyncio.timeout(2 * READY_S_MAX):
                tallies = [Tally(**json.loads(await _read(process, ""))) for process in clients]
            return self._round(tallies, before, await self._server_metrics(), cpu_s)

    def _round(self, tallies: list[Tally], before: Counter[str], after: Counter[str], cpu_s: float) -> Round:
        done_s = [each for tally in tallies for each in tally.done_s]
        failures = sum((Counter(tally.failures) for tally in tallies), Counter[str]())
        if len(done_s) < self._agents:
            done_s.append(READY_S_MAX)  # the round failed, and `failures` says for how many
        return Round(
            seconds=max(done_s),
            median_s=statistics.median(done_s),
            rejected=sum(tally.rejected for tally in tallies),
            rejected_by_server=after["rejected"] - before["rejected"],
            requests=sum(tally.requests for tally in tallies),
            server_cpu_s=self.plane.apiserver_cpu_seconds() - cpu_s,
            client_cpu_s=sum(tally.cpu_s for tally in tallies),
            seats=before["seats"],
            failures=dict(failures),
        )

    async def _apply(self, wanted: bool) -> None:
        """Apply deploy/apf or remove it, and wait until a request of an agent is treated accordingly."""
        if wanted == self._applied:
            return
        self._applied = wanted
        for found in yaml.safe_load_all(APF.read_text()):
            resource, name = KINDS[found["kind"]], found["metadata"]["name"]
            if wanted:
                await self._client.create(resource, None, found)
            else:
                await self._client.delete(resource, None, name)
        expected = await self._client.get(KINDS["FlowSchema"], None, AGENTS_SCHEMA if wanted else DEFAULT_SCHEMA)
        await eventually(self._schema_of_a_patch, expected["metadata"]["uid"])

    async def _schema_of_a_patch(self) -> str:
        """Return the uid of the FlowSchema that takes an announcement; the Pod does not exist."""
        transport = Http1Transport(read_kubeconfig(self._kubeconfig))
        try:
            request = announcement_request(AgentConfig(NAMESPACE, "nobody", JOBSET), 1)
            response = await transport.request(request, timeout_s=ANSWER_S_MAX)
            return response.headers.get("x-kubernetes-pf-flowschema-uid", "")
        finally:
            await transport.close()

    async def _server_metrics(self) -> Counter[str]:
        """Return requests rejected so far of either schema an agent may fall in, and the default level's seats."""
        request = Request("GET", "/metrics", self._client.headers)
        response = await self._client.transport.request(request, timeout_s=ANSWER_S_MAX)
        found: Counter[str] = Counter()
        for line in response.body.decode().splitlines():
            labels, _, value = line.rpartition(" ")
            if labels.startswith("apiserver_flowcontrol_rejected_requests_total{"):
                schema = re.search('flow_schema="([^"]*)"', labels)
                if schema is not None and schema[1] in (AGENTS_SCHEMA, DEFAULT_SCHEMA):
                    found["rejected"] += int(float(value))
            elif labels == 'apiserver_flowcontrol_current_limit_seats{priority_level="workload-low"}':
                found["seats"] = int(float(value))
        return found


@asynccontextmanager
async def _client_process() -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "benchmarks.herd_clients",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parents[1],
        env=os.environ,
        limit=2**24,  # one line holds a number for each agent
    )
    try:
        yield process
    finally:
        assert process.stdin is not None
        process.stdin.close()  # one that still waits for orders ends at that
        await until_ended(process, EXIT_S_MAX)


def _write(process: asyncio.subprocess.Process, line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(line.encode() + b"\n")


async def _read(process: asyncio.subprocess.Process, expected: str) -> str:
    """Return the next line."""
    assert process.stdout is not None
    line = (await process.stdout.readline()).decode().strip()
    if not line.startswith(expected) or not line:
        raise RuntimeError(f"expected a client process to print {expected or 'its tally'!r}, saw {line[:200]!r}")
    return line


@asynccontextmanager
async def open_bench(agents: int, processes: int, settle_s: float) -> AsyncIterator[HerdBench]:
    """Start a default kube-apiserver with a group on it."""
    async with ControlPlane(find_binaries()) as plane, kube_client(plane.kubeconfig, USER_AGENT) as client:
        bench = HerdBench(plane, client, agents, processes)
        await bench.prepare(settle_s)
        yield bench


async def find_concurrency(bench: HerdBench) -> int:
    """Return the concurrency with which a closed loop is done first, and tell each."""
    seconds = {}
    for concurrency in CONCURRENCIES:
        measured = await bench.measure(CAPACITY, concurrency)
        seconds[concurrency] = measured.seconds
        _tell(f"closed loop of {concurrency}", measured)
    return min(seconds, key=seconds.__getitem__)


def figures_of(agents: int, rounds: int, concurrency: int) -> Figures:
    """Return the report of no starts yet; clients and server must count the same rejections."""
    return Figures(
        f"{agents} agents start at one instant, {rounds} rounds; capacity is a closed loop of {concurrency}",
        compared=[(variant.name, CAPACITY.name) for variant in (WITH_APF, WITHOUT)],
        most={(variant.name, "miscounted"): 0.0 for variant in VARIANTS},
        means=("miscounted",),
    )


async def run(options: argparse.Namespace) -> Figures:
    """Measure every variant `rounds` times, in an order drawn anew for each round."""
    async with open_bench(options.agents, options.processes, options.settle_s) as bench:
        concurrency = await find_concurrency(bench)
        figures = figures_of(options.agents, options.rounds, concurrency)
        for number in range(options.rounds):
            for variant in Random(number).sample(VARIANTS, len(VARIANTS)):
                measured = await bench.measure(variant, concurrency)
                figures.add(variant.name, measured.figures(options.agents))
                _tell(f"round {number + 1} of {options.rounds}: {variant.name}", measured)
    return figures


def _tell(what: str, measured: Round) -> None:
    print(
        f"{what}: {measured.seconds:.2f} s, {measured.rejected} rejected ({measured.rejected_by_server} by the "
        f"server's count), CPU server {measured.server_cpu_s:.1f} s, clients {measured.client_cpu_s:.1f} s, "
        f"seats {measured.seats}{', ' + str(measured.failures) if measured.failures else ''}",
        file=sys.stderr,
        flush=True,
    )


def main() -> None:
    """Measure and print."""
    parser = flags(__doc__, agents=1000, rounds=10, processes=2)
    parser.add_argument("--settle-s", type=float, default=SETTLE_S, help="quiet seconds before each start")
    options = parser.parse_args()
    raise_file_limit(3 * options.agents + 1000)  # the server inherits it
    asyncio.run(run(options)).show(options)


if __name__ == "__main__":
    main()
