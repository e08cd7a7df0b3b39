"""
Compare ways to carry an agent's requests: the API server's CPU and the client's time for each, measured in one run.

    python -m benchmarks.transport --json     # a real kube-apiserver; needs Go once

Starts: each way makes a batch of starts in turn, round by round. Each start announces on its own Pod, and its watch
stays open until the batch is over. Server CPU is user plus system time of the kube-apiserver process, less its CPU when
idle. Fan-out: for each form one JobSet with its watchers, one status write at a time. Bytes are the event's per
watcher, on the wire with chunk framing and TLS, and of the first event after the watch began.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

from benchmarks.agent_start import NAMESPACE, jobset, pod
from benchmarks.api_backend import ACCOUNT, Backend, open_backend
from benchmarks.start import Start, Started
from benchmarks.transport_fanout import FORMS, Watchers
from benchmarks.transport_starts import OneConnection, OneHttp2Connection, TwoConnections
from benchmarks.upstream_client import UpstreamStart, http2_context
from inplace.common import wire
from inplace.common.kube.kubeconfig import read_kubeconfig
from inplace.common.kube.resources import JOBSETS, PODS

IDLE_S: Final = 2.0  # over which the server's own CPU is measured, before and after
UPSTREAM: Final = "upstream's requests: HTTP/2, discovery, watch, apply"
STARTS: Final[dict[str, Callable[[Start], Started]]] = {
    "two HTTP/1.1 connections: watch, patch": TwoConnections.begin,
    "one HTTP/1.1 connection: list, patch, watch": OneConnection.begin,
    "one HTTP/2 connection: watch, patch": OneHttp2Connection.begin,
    UPSTREAM: UpstreamStart.begin,
}


@dataclass(slots=True)
class Row:
    """What was measured of one variant, one number per round."""

    variant: str
    server_cpu_ms: list[float] = field(default_factory=list)
    client_ms: list[float] = field(default_factory=list)
    bytes_per_fanout: list[float] = field(default_factory=list)
    wire_bytes_per_fanout: list[float] = field(default_factory=list)
    first_bytes: float | None = None  # of the first event after the watch began, which is all that many agents see

    def as_json(self) -> dict[str, Any]:
        """Return medians, with the spread of the server's CPU."""
        body, wire_ = self.bytes_per_fanout, self.wire_bytes_per_fanout
        return {
            "variant": self.variant,
            "server_cpu_ms": round(statistics.median(self.server_cpu_ms), 2),
            "server_cpu_ms_min": round(min(self.server_cpu_ms), 2),
            "server_cpu_ms_max": round(max(self.server_cpu_ms), 2),
            "client_ms": round(statistics.median(self.client_ms), 2),
            "bytes_per_fanout": round(statistics.median(body), 1) if body else None,
            "wire_bytes_per_fanout": round(statistics.median(wire_), 1) if wire_ else None,
            "first_bytes_per_fanout": self.first_bytes,
        }


@asynccontextmanager
async def prepared(pods: list[str], forms: list[str]) -> AsyncIterator[tuple[Backend, Start]]:
    """Run a real API server with the Pods, and one JobSet (synced at epoch 1) for each name in `forms`."""
    async with open_backend("real", NAMESPACE) as backend:
        for name in forms:
            stored = await backend.client.create(JOBSETS, NAMESPACE, jobset(1) | {"metadata": {"name": name}})
            stored["status"] = {"restarts": 0} | wire.status_of_epochs(1, 0)
            await backend.client.replace(JOBSETS, NAMESPACE, name, stored, subresource="status")
        for name in pods:
            await backend.client.create(PODS, NAMESPACE, pod(name))
        to = read_kubeconfig(str(backend.agent_kubeconfig))
        tls = to.ssl_context()
        assert tls is not None, f"expected TLS in the kubeconfig of {ACCOUNT}"
        yield backend, Start(to, tls, http2_context(to), NAMESPACE, forms[0], "")


async def idle_cpu_per_s(backend: Backend) -> float:
    """Return the idle server's CPU use, in seconds per second."""
    before_s = backend.server_cpu_s()
    await asyncio.sleep(IDLE_S)
    return (backend.server_cpu_s() - before_s) / IDLE_S


def make_starts(
    backend: Backend, begin: Callable[[Start], Started], starts: list[Start], idle: float, row: Row
) -> None:
    """Make starts one after the other and add one number per start to the row."""
    before_s, began_s = backend.server_cpu_s(), time.perf_counter()
    times_ms, started = [], []
    for start in starts:
        start_s = time.perf_counter()
        started.append(begin(start))
        times_ms.append((time.perf_counter() - start_s) * 1e3)
    used_s = backend.server_cpu_s() - before_s - idle * (time.perf_counter() - began_s)
    for watching in started:
        watching.close()
    row.server_cpu_ms.append(used_s / len(starts) * 1e3)
    row.client_ms.append(statistics.median(times_ms))


async def measure_starts(rounds: int, batch: int) -> list[Row]:
    """Measure each way of starting, `rounds` batches of each in turn after a warm-up."""
    names = [f"pod-{number}" for number in range(batch)]
    rows = {variant: Row(variant) for variant in STARTS}
    async with prepared(names, ["train"]) as (backend, start):
        starts = [replace(start, pod=name) for name in names]
        for round_ in range(rounds + 1):
            idle = await idle_cpu_per_s(backend)
            for variant, begin in STARTS.items():
                await forget_announcements(backend, names)
                into = rows[variant] if round_ else Row("warm-up")
                await asyncio.to_thread(make_starts, backend, begin, starts, idle, into)
    return list(rows.values())


async def forget_announcements(backend: Backend, names: list[str]) -> None:
    """Set every Pod back to epoch 1: a patch that changes nothing would be cheaper than it is."""
    for name in names:
        await backend.client.patch(PODS, NAMESPACE, name, {"metadata": {"annotations": wire.epoch_annotations(1)}})


async def measure_fanout(rounds: int, watchers: int) -> list[Row]:
    """Measure one status write per form and round."""
    names = {form: f"train-{number}" for number, form in enumerate(FORMS)}
    rows = {form: Row(form) for form in FORMS}
    async with prepared([], list(names.values())) as (backend, start):
        open_watchers = {}
        for form, name in names.items():
            version = (await backend.client.get(JOBSETS, NAMESPACE, name))["metadata"]["resourceVersion"]
            mine = replace(start, jobset=name)
            open_watchers[form] = await asyncio.to_thread(Watchers, mine, FORMS[form], version, watchers)
        try:
            for round_ in range(rounds + 1):
                for form, name in names.items():
                    into = rows[form] if round_ else Row("first")
                    await fan_out(backend, name, round_ + 2, open_watchers[form], into)
                    if not round_:
                        rows[form].first_bytes = round(into.bytes_per_fanout[0], 1)
        finally:
            for each in open_watchers.values():
                each.close()
    return list(rows.values())


async def fan_out(backend: Backend, name: str, epoch: int, watchers: Watchers, row: Row) -> None:
    """Write one status and wait until every watcher has it."""
    stored = await backend.client.get(JOBSETS, NAMESPACE, name)
    stored["status"] |= wire.status_of_epochs(epoch, epoch - 1)
    await asyncio.to_thread(watchers.drain)
    idle = await idle_cpu_per_s(backend)
    before_s, began_s = backend.server_cpu_s(), time.perf_counter()
    waiting = asyncio.create_task(asyncio.to_thread(watchers.await_event))
    await backend.client.replace(JOBSETS, NAMESPACE, name, stored, subresource="status")
    arrival = await waiting
    used_s = backend.server_cpu_s() - before_s - idle * (time.perf_counter() - began_s)
    row.server_cpu_ms.append(used_s * 1e3)
    row.client_ms.append(arrival.seconds * 1e3)
    row.bytes_per_fanout.append(arrival.body_bytes)
    row.wire_bytes_per_fanout.append(arrival.wire_bytes)


async def run(rounds: int, batch: int, watchers: int) -> dict[str, Any]:
    """Measure everything."""
    starts = await measure_starts(rounds, batch)
    rows = [row.as_json() for row in (*starts, *await measure_fanout(rounds, watchers))]
    cpu = {row["variant"]: row["server_cpu_ms"] for row in rows}
    return {
        "rounds": rounds,
        "starts_per_round": batch,
        "watchers": watchers,
        "rows": rows,
        "upstream_cpu_ratio": {way: round(cpu[way] / cpu[UPSTREAM], 3) for way in STARTS if way != UPSTREAM},
    }


def main() -> None:
    """Print the table, and one JSON object with --json."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.transport", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    parser.add_argument("--rounds", type=int, default=10, help="batches of each way, writes of each form")
    parser.add_argument("--batch", type=int, default=40, help="starts per batch: CPU is counted in ticks of 10 ms")
    parser.add_argument("--watchers", type=int, default=1000, help="watchers of each form")
    options = parser.parse_args()
    for name in ("rounds", "batch", "watchers"):
        if getattr(options, name) < 1:
            parser.error(f"--{name}: expected 1 or more, saw {getattr(options, name)}")
    result = asyncio.run(run(options.rounds, options.batch, options.watchers))
    print(
        f"{'variant':56} {'server CPU ms (min..max)':>26} {'client ms':>10} {'bytes':>8} {'on wire':>8} {'first':>8}",
        file=sys.stderr,
    )
    for row in result["rows"]:
        spread = f"{row['server_cpu_ms']:.2f} ({row['server_cpu_ms_min']:.2f}..{row['server_cpu_ms_max']:.2f})"
        sent = [row["bytes_per_fanout"], row["wire_bytes_per_fanout"]]
        sizes = "" if sent[0] is None else f"{sent[0]:8.0f} {sent[1]:8.0f} {row['first_bytes_per_fanout']:8.0f}"
        print(f"{row['variant']:56} {spread:>26} {row['client_ms']:10.2f} {sizes}", file=sys.stderr)
    if options.json:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
