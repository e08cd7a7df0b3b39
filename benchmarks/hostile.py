"""
Measure how the largest and worst objects of one namespace affect the controller and a JobSet beside them.

Each row creates one kind of object, lets a normal group restart repeatedly, and prints the worst: the longest turn of
the controller's event loop, the slowest restart, the most memory, and whether the Lease was lost. The last row has all
objects at once. In the first row and in that of many JobSets of many Jobs, JobSets of a third namespace come meanwhile,
and it is measured how long each waits for its Job.

A turn's time is the loop's own CPU time: the API server and all clients share the machine's cores, and their work does
not count. `--wall` counts wall time instead. On the simulator the group restarts AFTER the objects were created: a
server in Python takes seconds for a large object and answers no other request meanwhile. On a real server it also
restarts while they are created.

    python -m benchmarks.hostile --json
    python -m benchmarks.hostile --backend real --pods 100000
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.controller_burst import count_jobs
from benchmarks.controller_lab import ACCOUNT, ACCOUNT_NAMESPACE, NAMESPACE, ControllerProcess, Lab, open_lab
from benchmarks.controller_pods import PlayedGroup, at_once
from benchmarks.controller_restart import SEEN_S_MAX, StatusWatch, announce_all, form, watching
from benchmarks.figures import flags
from benchmarks.hostile_objects import FAILING, Attack, attacks, failed_status
from benchmarks.hostile_objects import NAMESPACE as HOSTILE
from benchmarks.newcomers import NAMESPACE as NEWCOMERS
from benchmarks.newcomers import newcomers, percentile
from benchmarks.timed_controller import TurnsFile, command
from inplace.common.kube.client import KubeClient
from inplace.common.kube.errors import ApiError
from inplace.common.kube.http.request import Request, TransportError
from inplace.common.kube.resources import JOBS, JOBSETS, LEASES, NAMESPACES, PODS, SERVICES, KubeObject, Resource

PAUSE_MS_MAX: Final = 250.0
RESTART_MS_MAX: Final = 2_000.0
NEW_JOB_MS_MAX: Final = 1_000.0
NEW_JOB_PERCENT: Final = 99
RSS_MB_MAX: Final = 512 * 1.048576  # the limit of deploy/controller, in MB of 10^6 bytes
LEASE_S: Final = 15.0  # its leaseDurationSeconds
BESIDE: Final = "victim"
BESIDE_PODS: Final = 16
TOGETHER: Final = "all of these together"
SECONDS: Final = 10.0  # a barrier deadline of 1 s ends in it, again and again
JOBSETS_OF_ONE_USER: Final = 1_000
LABELLED_PODS: Final = 100_000
HEAVY_BYTES: Final = {"real": 1_000_000, "simulator": 30_000}  # etcd takes 1.5 MiB; CEL in Python takes 27 s for 1 MB
CLEAN_S_MAX: Final = 900.0  # a real server deletes some 500 objects a second
CLEAN_TOGETHER: Final = 500
CREATE_S_MAX: Final = 120.0  # of one object: a real server on two busy cores needs many seconds for a megabyte
FLOOD_S_MAX: Final = 600.0
REFUSAL_CHARACTERS: Final = 200
POLL_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Row:
    """What one attack did.

    Args:
        object: the attack's name.
        created: objects that the API server took.
        refused: objects that it did not.
        loop_pause_ms_max: the longest turn of the controller's event loop.
        restart_beside_ms: the slowest restart of the well-behaved group.
        rss_mb: the most memory that the controller has had so far.
        lease_lost: the controller lost its Lease, or did not renew it in time.
        new_job_ms: how long 99 of 100 new JobSets of another namespace waited for their Job at most; None where it was
            not measured.
        new_jobs: how many new JobSets that were.
        flood_s: how long the controller took for the Jobs of the attack, if it was measured meanwhile.
    """

    object: str
    created: int
    refused: int
    loop_pause_ms_max: float
    restart_beside_ms: float
    rss_mb: float
    lease_lost: bool
    new_job_ms: float | None = None
    new_jobs: int = 0
    flood_s: float = 0.0

    @property
    def is_within(self) -> bool:
        """Return whether all bounds hold."""
        in_time = self.loop_pause_ms_max <= PAUSE_MS_MAX and self.restart_beside_ms <= RESTART_MS_MAX
        in_time &= (self.new_job_ms or 0.0) <= NEW_JOB_MS_MAX
        return in_time and self.rss_mb <= RSS_MB_MAX and not self.lease_lost


@dataclass(slots=True)
class LeaseWatch:
    """Follows the controller's Lease."""

    client: KubeClient
    renewed: object = None
    renewed_s: float = field(default_factory=time.monotonic)
    transitions: int | None = None
    is_lost: bool = False

    async def follow(self) -> None:
        """Look each second, for ever."""
        while True:
            await self.look()
            await asyncio.sleep(1.0)

    async def look(self) -> None:
        """Note whether the Lease has another holder, or is not renewed."""
        spec = (await self.client.get(LEASES, ACCOUNT_NAMESPACE, ACCOUNT))["spec"]
        now_s, transitions = time.monotonic(), spec.get("leaseTransitions", 0)
        if spec.get("renewTime") != self.renewed:
            self.renewed, self.renewed_s = spec.get("renewTime"), now_s
        self.is_lost |= now_s - self.renewed_s > LEASE_S or transitions != (self.transitions or transitions)
        self.transitions = transitions


@dataclass(slots=True)
class Bench:
    """One controller under attack, and a group beside it."""

    lab: Lab
    process: ControllerProcess
    turns: TurnsFile
    group: PlayedGroup
    watch: StatusWatch
    lease: LeaseWatch
    seconds: float
    wall: bool
    is_real: bool

    async def measure(self, name: str, chosen: Sequence[Attack]) -> Row:
        """Create the objects, restart the group beside them meanwhile and for some seconds after, and clean up."""
        self.turns.reset()
        self.process.reset_peak()
        self.lease.is_lost = False
        creation = Creation(self.lab.client)
        creating = asyncio.create_task(creation.run(chosen) if chosen else creation.nothing(self.seconds))
        slowest_s = await self._restart_until(creating) if self.is_real else 0.0
        await creating
        slowest_s = max(slowest_s, await self._restart_until(asyncio.create_task(asyncio.sleep(self.seconds))))
        await self.lease.look()
        longest = self.turns.read()
        await self._clean()
        return Row(
            object=name,
            created=creation.created,
            refused=creation.refused,
            loop_pause_ms_max=round((longest.wall_s if self.wall else longest.cpu_s) * 1e3, 1),
            restart_beside_ms=round(slowest_s * 1e3, 1),
            rss_mb=round(self.process.rss_mb("VmHWM"), 1),
            lease_lost=self.lease.is_lost,
            new_job_ms=round(percentile(creation.waits_s, NEW_JOB_PERCENT) * 1e3, 1) if creation.waits_s else None,
            new_jobs=len(creation.waits_s),
            flood_s=round(creation.flood_s, 1),
        )

    async def _restart_until(self, ends: asyncio.Task[None]) -> float:
        """Restart the group at least once, and again until a task ends; return how long the slowest took."""
        slowest_s = 0.0
        while slowest_s == 0.0 or not ends.done():
            try:
                slowest_s = max(slowest_s, (await announce_all(self.group, self.watch, kubelets=False)).total_s)
            except TimeoutError:
                return SEEN_S_MAX
        return slowest_s

    async def _clean(self) -> None:
        """Delete what the attack created and what the controller made of it, in parts: others have their turn."""
        query = {"propagationPolicy": "Background", "gracePeriodSeconds": "0", "limit": str(CLEAN_TOGETHER)}
        async with asyncio.timeout(CLEAN_S_MAX):
            for namespace, kind in product((NEWCOMERS, HOSTILE), (JOBSETS, JOBS, PODS, SERVICES)):
                while (await self.lab.client.list(kind, namespace, query={"limit": "1"}))["items"]:
                    request = Request("DELETE", kind.path(namespace, query=query), self.lab.client.headers)
                    with suppress(ApiError, TransportError):  # a real server breaks off what takes it over a minute
                        await self.lab.client.send(request, timeout_s=CLEAN_S_MAX)


@dataclass(slots=True)
class Creation:
    """Creates objects, and counts what the API server takes and refuses."""

    client: KubeClient
    created: int = 0
    refused: int = 0
    waits_s: list[float] = field(default_factory=list)
    flood_s: float = 0.0

    async def run(self, chosen: Sequence[Attack]) -> None:
        """Create all objects of the attacks."""
        for attack in chosen:
            if attack.floods and len(chosen) == 1:  # beside the others its Jobs take as long as theirs
                await self._flood(attack)
            elif attack.one_by_one:
                for manifest in attack.objects():
                    await self._create(attack.kind, manifest)
            else:
                await at_once(partial(self._create, attack.kind), attack.objects())
            if attack.fails:
                await self._fail_jobs(attack.fails)

    async def _fail_jobs(self, count: int) -> None:
        """Let Jobs fail as the Job controller would, as they appear."""
        failed: set[str] = set()
        async with asyncio.timeout(CREATE_S_MAX):
            while len(failed) < count:
                found = (await self.client.list(JOBS, HOSTILE, query={"labelSelector": FAILING}))["items"]
                for name in {job["metadata"]["name"] for job in found} - failed:
                    status = {"status": failed_status(len(failed))}
                    await self.client.patch(JOBS, HOSTILE, name, status, subresource="status")
                    failed.add(name)
                await asyncio.sleep(POLL_S)

    async def nothing(self, seconds: float) -> None:
        """Create nothing, while other users' JobSets come: what there is to compare with."""
        async with newcomers(self.client) as self.waits_s:
            await asyncio.sleep(seconds)

    async def _flood(self, attack: Attack) -> None:
        """Create the objects, and wait for their Jobs while other users' JobSets come."""
        began_s = time.monotonic()
        await at_once(partial(self._create, attack.kind), attack.objects())
        async with newcomers(self.client) as self.waits_s, asyncio.timeout(FLOOD_S_MAX):
            while await count_jobs(self.client, HOSTILE) < attack.floods:  # noqa: ASYNC110 - another process makes them
                await asyncio.sleep(POLL_S)
        self.flood_s = time.monotonic() - began_s

    async def _create(self, kind: Resource, manifest: KubeObject) -> None:
        try:
            headers = self.client.headers | {"content-type": "application/json"}
            request = Request("POST", kind.path(HOSTILE), headers, msgspec.json.encode(manifest))
            await self.client.send(request, timeout_s=CREATE_S_MAX)
            self.created += 1
        except ApiError as error:
            self.refused += 1
            print(f"  refused: {str(error)[:REFUSAL_CHARACTERS]}", file=sys.stderr)


async def measure(options: argparse.Namespace) -> list[Row]:
    """Run each attack alone, and then all together."""
    async with open_lab(options.backend) as lab, _bench(lab, options) as bench:
        victim = await lab.client.get(JOBSETS, NAMESPACE, BESIDE)
        heavy_bytes = options.heavy_bytes or HEAVY_BYTES[options.backend]
        every = attacks(jobsets=options.jobsets, heavy_bytes=heavy_bytes, pods=options.pods, victim=victim)
        chosen = tuple(one for one in every if is_chosen(one.name, options.only))
        if not chosen and not is_chosen(TOGETHER, options.only):
            sys.exit(f"--only: expected a part of {', '.join(one.name for one in every)}; saw {options.only}")
        steps = [("nothing", ()), *((attack.name, (attack,)) for attack in chosen), (TOGETHER, chosen or every)]
        rows: list[Row] = []
        for name, step in steps:
            rows.append(await bench.measure(name, step))
            print(row_text(rows[-1]), file=sys.stderr, flush=True)  # of half an hour of work nothing is lost
            if rows[-1].restart_beside_ms >= SEEN_S_MAX * 1e3:
                print("the controller does nothing any more; the other rows are left out", file=sys.stderr)
                break
        return rows


def is_chosen(name: str, only: Sequence[str] | None) -> bool:
    """Return whether a row is selected."""
    return not only or any(part in name for part in only)


@asynccontextmanager
async def _bench(lab: Lab, options: argparse.Namespace) -> AsyncIterator[Bench]:
    """Start the controller and the group."""
    for namespace in (HOSTILE, NEWCOMERS):
        await lab.client.create(NAMESPACES, None, {"metadata": {"name": namespace}})
    with tempfile.TemporaryDirectory(prefix="inplace-bench-") as folder:
        turns = TurnsFile(Path(folder, "turns"))
        async with lab.controller(command(Path(folder, "turns"))) as process:
            group, lease = PlayedGroup(lab.client, BESIDE), LeaseWatch(lab.client)
            await group.create(BESIDE_PODS)
            async with watching(lab.client, BESIDE) as watch:
                await form(group, watch)
                following = asyncio.create_task(lease.follow())
                try:
                    yield Bench(
                        lab,
                        process,
                        turns,
                        group,
                        watch,
                        lease,
                        options.seconds,
                        options.wall,
                        options.backend == "real",
                    )
                finally:
                    following.cancel()


def row_text(row: Row) -> str:
    """Return one line of the table."""
    lost = "YES" if row.lease_lost else "no"
    new_job = "-" if row.new_job_ms is None else row.new_job_ms
    figures = f"{row.loop_pause_ms_max:>10}{row.restart_beside_ms:>12}{new_job:>12}{row.rss_mb:>9}{lost:>12}"
    return f"{row.object:46}{figures}{'' if row.is_within else '  MISSED'}"


def table(rows: Sequence[Row]) -> str:
    """Return the rows as text, with the bounds."""
    lines = [f"{'object':46}{'pause ms':>10}{'restart ms':>12}{'new Job ms':>12}{'RSS MB':>9}{'lease lost':>12}"]
    lines += map(row_text, rows)
    bounds = f"{PAUSE_MS_MAX:>10}{RESTART_MS_MAX:>12}{NEW_JOB_MS_MAX:>12}{RSS_MB_MAX:>9.1f}{'no':>12}"
    return "\n".join([*lines, f"{'at most':46}{bounds}"])


def parser() -> argparse.ArgumentParser:
    """Return the parser of the flags."""
    found = flags(__doc__, jobsets=JOBSETS_OF_ONE_USER, pods=LABELLED_PODS)
    found.add_argument("--backend", choices=tuple(HEAVY_BYTES), default="simulator")
    found.add_argument("--wall", action="store_true", help="measure pauses in wall time")
    found.add_argument("--seconds", type=float, default=SECONDS, help="duration of each row after its objects exist")
    found.add_argument("--heavy-bytes", type=int, help="size of each object in the row with large ones")
    found.add_argument(
        "--only",
        action="append",
        help="run only rows whose name contains this; repeatable; `together` runs the last row alone",
    )
    return found


def main() -> int:
    """Measure and print; 1 when a bound was missed."""
    options = parser().parse_args()
    rows = asyncio.run(measure(options))
    found = {"backend": options.backend, "rows": [asdict(row) | {"within": row.is_within} for row in rows]}
    print(json.dumps(found) if options.json else table(rows))
    return int(not all(row.is_within for row in rows))


if __name__ == "__main__":
    sys.exit(main())
