"""
Measure which steps a failure costs: with memory that outlives a worker, and without.

    python -m benchmarks.resume [jax] [torch] [--kills 100] [--losses 30] [--mb 256] [--json]

Four Pods train an example on the loopback of one machine. Each rank's state has --mb of 10^6 bytes more, which it reads
back when it goes on. Rank 0 writes to the claim that all share each SHARED_EVERY steps; in the rows `memory` and
`standby` each rank writes to a memory volume after each step. The rows take turns, ROUNDS times, each turn with a new
group. A rank is killed at a random moment, --kills times in the row `memory`; in the others a fifth as often, in
`standby` when all standbys are ready. In the row `memory` --losses Pods are deleted, each when there is a newer shared
step than that from which the group went on.

`lost_steps` are those that all four ranks had made and must make again, `lost_over_1` is the share of kills that lost
more than one. `s` is the time from the kill or the deletion until all four have gone on (the first collective of the
new run). `hung` is the share of turns in which a group did not go on. `save_ms` is what one save to memory takes while
four ranks share the cores, `save_cpu_ms` its CPU time, `save_percent` the part of that in a step of 0.5 s. The
row `memcpy` has the same for a copy of the same bytes in memory: no save in the training's own thread can be faster.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

from benchmarks.figures import Figures, flags
from benchmarks.systems import PODS, RESUMED, STANDBY, STEP, Group, in_pods, keep_in_memory
from testbed.frameworks.ranks import trainers

RANK: Final = "benchmarks.resume_rank"
ROUNDS: Final = 5
SHARED_EVERY: Final = 50
STEPS_BETWEEN: Final = 6  # of each rank, before the next kill
STEPS_BEHIND_SHARED: Final = (2, 25)  # of each rank, before a Pod is deleted: after one more all have told of the step
FOREVER: Final = 10**6  # steps
STEP_MS: Final = 500.0
COPIES: Final = 3  # of a round
TAIL_BYTES: Final = 2_000
POLL_S: Final = 0.02
SHM: Final = "/dev/shm"  # noqa: S108 - where a memory volume's bytes are on this machine
_EPOCH: Final = re.compile(rb"^rank=\d+ .*epoch=(\d+) goes on from step \d+$", re.MULTILINE)
_WROTE: Final = re.compile(rb"^wrote (local|shared) step=(\d+) in ([0-9.]+) ms, ([0-9.]+) ms of CPU$", re.MULTILINE)


@dataclass(frozen=True)
class Row:
    """One way to save.

    Args:
        key: its name in the report.
        kills: of ranks, one after the other.
        losses: of Pods, after the kills.
        keeps: the Pods have a memory volume.
        standby: each has a standby.
    """

    key: str
    kills: int
    losses: int = 0
    keeps: bool = True
    standby: bool = False


def rows(kills: int, losses: int, number: int) -> tuple[Row, ...]:
    """Return the rows of a round, which has its share of the kills and the losses."""

    def share(of_all: int) -> int:
        return of_all // ROUNDS + (number < of_all % ROUNDS)

    few = share(-(-kills // ROUNDS))
    every = (
        Row("memory", share(kills), share(losses)),
        Row("shared", few, keeps=False),
        Row("standby", few, standby=True),
    )
    return tuple(row for row in every if row.kills or row.losses)


def training(texts: Sequence[bytes]) -> list[bytes]:
    """Return the texts of ranks that train in the newest epoch: one that gave its rank to a spare waits since then."""
    newest = {text: int(found[-1]) for text in texts if (found := _EPOCH.findall(text))}
    return [text for text in texts if newest.get(text) in (None, max(newest.values(), default=None))]


def made(texts: Sequence[bytes]) -> int:
    """Return the last step that the slowest of the ranks made; a new Pod's rank counts."""
    return min((int(found[-1]) for text in training(texts) if (found := STEP.findall(text))), default=0)


def newest_shared(texts: Sequence[bytes]) -> int:
    """Return the newest shared step after which all ranks made another one: then all have told of it."""
    written = [int(step) for text in texts for kind, step, *_ in _WROTE.findall(text) if kind == b"shared"]
    return max((step for step in written if step < made(texts)), default=0)


def gone_on_from(texts: Sequence[bytes]) -> int:
    """Return the step from which all ranks went on; if they differ, the benchmark has found a mistake and ends."""
    steps = {int(RESUMED.findall(text)[-1]) for text in training(texts) if RESUMED.search(text)}
    assert len(steps) == 1, f"expected all ranks to go on from one step, saw {sorted(steps)}"
    return steps.pop()


def changed(framework: str, megabytes: int, *, keeps: bool) -> Any:
    """Return what makes an example's Pods those of this benchmark."""

    def change(pod: dict[str, Any]) -> None:
        (worker,) = pod["containers"]
        words = worker["command"]
        words[words.index("-m") + 1 :] = [RANK]
        values = {"PADDING_MB": str(megabytes), "FRAMEWORK": framework}
        values |= {"CHECKPOINT_EVERY": str(SHARED_EVERY), "STEPS": str(FOREVER)}
        if keeps:
            keep_in_memory(pod)
        worker["env"] = [entry for entry in worker["env"] if entry["name"] not in values]
        worker["env"] += [{"name": name, "value": value} for name, value in values.items()]

    return change


async def measure(framework: str, row: Row, megabytes: int, figures: Figures, rng: Random) -> None:
    """Kill ranks, and delete Pods, of one group; print each."""
    with tempfile.TemporaryDirectory(prefix="inplace-resume-", dir=SHM) as name:
        started = in_pods(
            Path(name),
            framework=framework,
            example=framework,
            options=STANDBY if row.standby else (),
            change=changed(framework, megabytes, keeps=row.keeps),
        )
        async with started as group:
            group.poll_s = POLL_S
            try:
                await _fail(framework, row, group, figures, rng)
            except TimeoutError:
                tails = b"\n".join(text[-TAIL_BYTES:] for text in group.texts()).decode(errors="replace")
                print(f"expected {row} to go on, saw of each rank:\n{tails}", file=sys.stderr, flush=True)
                figures.add(row.key, {"hung": 1})
            else:
                figures.add(row.key, {"hung": 0})
            found = [save for text in group.texts() for save in _WROTE.findall(text)]
    for kind, _, ms, cpu_ms in found:
        if kind == b"local":
            _add_save(figures, row.key, float(ms), float(cpu_ms))
        else:
            figures.add(row.key, {"save_shared_ms": float(ms)})


async def _fail(framework: str, row: Row, group: Group, figures: Figures, rng: Random) -> None:
    """Let one group fail as often as its row says."""
    standbys, step = PODS if row.standby else 0, 0
    await group.reach(PODS, 0)
    for number in range(row.kills + row.losses):
        loses_pod = number >= row.kills
        to_next_shared = SHARED_EVERY - step % SHARED_EVERY
        steps = to_next_shared + rng.randint(*STEPS_BEHIND_SHARED) if loses_pod else STEPS_BETWEEN
        await group.reach(group.resumed, PODS * steps, standbys)
        await asyncio.sleep(rng.uniform(0, 0.5))
        before = group.texts()
        began_s = time.monotonic()
        if loses_pod:
            await group.delete_pod(rng)
        else:
            os.kill(rng.choice(trainers(group.marker, RANK))[0], signal.SIGKILL)
            before = group.texts()  # the rank that is dead made no step more
        await group.reach(group.resumed + PODS, 0)
        seconds, step, last = time.monotonic() - began_s, gone_on_from(group.texts()), made(before)
        key = f"{row.key}, Pod lost" if loses_pod else row.key
        lost = max(0, last - step)
        figures.add(key, {"s": seconds, "lost_steps": lost})
        if loses_pod:
            figures.add(key, {"behind_newest_shared": max(0, newest_shared(before) - step)})
        elif row.keeps:
            figures.add(key, {"lost_over_1": lost > 1})
        told = f"made {last}, newest shared {newest_shared(before)}, on from {step} after {seconds:.2f} s"
        print(f"{framework} {key} {number}: {told}", file=sys.stderr, flush=True)


def _add_save(figures: Figures, row: str, ms: float, cpu_ms: float) -> None:
    figures.add(row, {"save_ms": ms, "save_cpu_ms": cpu_ms, "save_percent": 100 * cpu_ms / STEP_MS})


def copy_bytes(megabytes: int, figures: Figures) -> None:
    """Add what copies of so many bytes take, between memory that was written before."""
    source, target = (bytearray(b"\1") * (megabytes * 10**6) for _ in range(2))
    for _ in range(COPIES):
        began_s, began_cpu_s = time.monotonic(), time.thread_time()
        target[:] = source
        _add_save(figures, "memcpy", (time.monotonic() - began_s) * 1e3, (time.thread_time() - began_cpu_s) * 1e3)


async def compare(framework: str, options: Any) -> Figures:
    """Measure all rows in each round; print what there is after each, so that a run that is ended has it."""
    pods_lost = "memory, Pod lost"
    never: dict[tuple[str, str], float] = {(row, "lost_over_1"): 0 for row in ("memory", "standby")}
    figures = Figures(
        f"{framework}: {PODS} Pods on {os.cpu_count()} cores, {options.mb} MB a rank",
        compared=[("memory", "shared"), ("standby", "shared"), ("memory", "memcpy")],
        most=never
        | {(pods_lost, "behind_newest_shared"): 0, ("memory", "save_percent"): 2}
        | ({("standby", "s"): 1.0} if framework == "jax" else {}),
        means=("lost_over_1", "behind_newest_shared", "hung"),
    )
    rng = Random(1)
    for number in range(ROUNDS):
        for row in rows(options.kills, options.losses, number):
            await measure(framework, row, options.mb, figures, rng)
        copy_bytes(options.mb, figures)
        print(f"after {number + 1} of {ROUNDS} rounds: {figures.text()}", file=sys.stderr, flush=True)
    return figures


def main() -> None:
    """Measure and print."""
    parser = flags(__doc__, kills=100, losses=30, mb=256)
    parser.add_argument("framework", nargs="*", default=["jax", "torch"], help="jax, torch; default: both")
    options = parser.parse_args()
    for framework in options.framework:
        asyncio.run(compare(framework, options)).show(options)


if __name__ == "__main__":
    main()
