"""
Measure what an agent without a window looks at: the TLS handshake and the list of an idle and of a busy kube-apiserver.

    python -m benchmarks.herd_look [--json] [--looks 40]       # a real kube-apiserver; needs Go once

Busy is a closed loop of clients that announce, in a process of their own: fewer than the server's 56 seats, so nothing
is rejected yet. `late` is the share of looks that put a start off (docs/adr/0061-a-window-that-learns.md). Server and
clients share the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from time import monotonic, sleep
from typing import Any, Final

from benchmarks.api_backend import ACCOUNT
from benchmarks.herd import JOBSET, NAMESPACE, HerdBench, open_bench
from benchmarks.herd_clients import pod_name
from inplace.agent.config import AgentConfig
from inplace.agent.jobset_requests import announcement_request, list_request
from inplace.agent.start_window import is_slow
from inplace.common.kube.ahead import Ahead
from inplace.common.kube.http import TransportError
from inplace.common.kube.http1 import Http1Transport
from inplace.common.kube.kubeconfig import read_kubeconfig

PODS: Final = 40
CLIENTS: Final = (0, 8, 40)
LOOK_S_MAX: Final = 10.0
PAUSE_S: Final = 0.02
SETTLE_S: Final = 5.0  # a server that has just begun is busy with itself
WARM_S: Final = 3.0  # from the clients' process to their load
ANSWER_S_MAX: Final = 30.0


def look(kubeconfig: str, looks: int) -> list[tuple[float, float, float]]:
    """Return (round trip, wait for the handshake, wait for the list) of so many looks, in seconds."""
    credentials = read_kubeconfig(kubeconfig)
    context = credentials.ssl_context()
    request = list_request(_config(0), as_table=True, consistent=False)
    found = []
    for _ in range(looks):
        ahead = Ahead(credentials, context, within_s=LOOK_S_MAX)
        ahead.connect()
        ahead.establish()
        handshake_s = ahead.waited_s
        ahead.send(request)
        ahead.answer()
        found.append((ahead.round_trip_s, handshake_s, ahead.waited_s - handshake_s))
        ahead.close()
        sleep(PAUSE_S)
    return found


def row_of(clients: int, looks: list[tuple[float, float, float]]) -> dict[str, Any]:
    """Return what is printed of the looks beside so many clients."""
    late = sum(is_slow(handshake_s, trip_s) or is_slow(list_s, trip_s) for trip_s, handshake_s, list_s in looks)
    row: dict[str, Any] = {"clients": clients, "looks": len(looks), "late": round(late / len(looks), 2)}
    for name, values in zip(("round_trip", "handshake", "list"), zip(*looks, strict=True), strict=True):
        row[f"{name}_ms"] = round(1e3 * statistics.median(values), 2)
        row[f"{name}_ms_max"] = round(1e3 * max(values), 2)
    return row


def _config(index: int) -> AgentConfig:
    return AgentConfig(NAMESPACE, pod_name(index), JOBSET, previous_epoch=1)


@asynccontextmanager
async def _load(kubeconfig: str, clients: int) -> AsyncIterator[None]:
    """Let so many clients announce without a pause, in a process of their own."""
    if not clients:
        await asyncio.sleep(SETTLE_S)
        yield
        return
    command = (sys.executable, "-m", "benchmarks.herd_look", "--announce", kubeconfig, str(clients))
    process = await asyncio.create_subprocess_exec(*command)
    try:
        await asyncio.sleep(WARM_S)
        yield
    finally:
        process.terminate()
        await process.wait()


async def _announce(kubeconfig: str, clients: int) -> None:
    """Announce for ever."""

    async def one(index: int) -> None:
        transport, number = Http1Transport(read_kubeconfig(kubeconfig)), int(monotonic())
        while True:
            number += 1
            with suppress(TransportError):
                await transport.request(announcement_request(_config(index % PODS), number), timeout_s=ANSWER_S_MAX)

    async with asyncio.TaskGroup() as group:
        for index in range(clients):
            group.create_task(one(index))


async def measure(looks: int) -> dict[str, Any]:
    """Return what --json prints."""
    bench: HerdBench
    async with open_bench(PODS, processes=1, settle_s=0.0) as bench:
        kubeconfig = str(await bench.plane.service_account_kubeconfig(NAMESPACE, ACCOUNT))
        rows = []
        for clients in CLIENTS:
            async with _load(kubeconfig, clients):
                rows.append(row_of(clients, await asyncio.to_thread(look, kubeconfig, looks)))
    return {"kind": "measured", "rows": rows}


def main() -> int:
    """Print a table, or one JSON object with --json."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.herd_look", description=__doc__.split("\n\n")[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--looks", type=int, default=40, choices=range(1, 1_000), metavar="1..999", help="for each load"
    )
    parser.add_argument("--announce", nargs=2, help=argparse.SUPPRESS)  # the clients' own process
    options = parser.parse_args()
    if options.announce:
        asyncio.run(_announce(options.announce[0], int(options.announce[1])))
        return 0
    found = asyncio.run(measure(options.looks))
    if options.json:
        print(json.dumps(found))
        return 0
    print("clients  late  handshake ms    most       list ms    most")
    for row in found["rows"]:
        waits = "".join(f"{row[f'{name}_ms']:14.2f} {row[f'{name}_ms_max']:8.1f}" for name in ("handshake", "list"))
        print(f"{row['clients']:>7} {row['late']:>5.2f}{waits}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
