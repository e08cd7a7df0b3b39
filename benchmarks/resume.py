"""
Measure which steps a failure costs: with memory that outlives a worker, and without.

    python -m benchmarks.resume [jax] [torch] [--kills 100] [--losses 30] [--mb 256] [--json]

Four Pods train an example on the loopback of one machine. Each rank writes its state and --mb of 10^6 bytes more: to a
folder that all share each SHARED_EVERY steps, and in the row `memory` to a memory volume after each step. A rank is
killed at a random moment, --kills times in both rows; in the row `memory` a Pod is deleted --losses times. `lost_steps`
are those that all four ranks had made and must make again; `s` is the time from the kill or the deletion until all four
have gone on (the first collective of the new run). `save_ms` is what one save takes, and `memcpy_ms` what copying the
same bytes takes on this machine: no save of so many bytes in the training's own thread can be faster.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from typing import Any, Final

from benchmarks.figures import Figures, flags
from benchmarks.frameworks import PODS, Group, in_pods
from testbed.frameworks.ranks import trainers

RANK: Final = "benchmarks.resume_rank"
SHARED_EVERY: Final = 50
STEPS_BETWEEN: Final = 6  # of the slowest rank, before the next kill
FOREVER: Final = 10**6  # steps
TAIL_BYTES: Final = 2_000
POLL_S: Final = 0.02
RUN_S_MAX: Final = 60.0
SHM: Final = "/dev/shm"  # noqa: S108 - where a memory volume's bytes are on this machine
_STEP: Final = re.compile(rb"^step=(\d+) ", re.MULTILINE)
_RESUMED: Final = re.compile(rb"^rank=\d+ .*goes on from step (\d+)$", re.MULTILINE)
_WROTE: Final = re.compile(rb"^wrote (local|shared) step=(\d+) in (\d+) ms$", re.MULTILINE)


class Ranks:
    """What the four ranks printed, by rank."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self.texts: list[bytes] = []

    def read(self) -> None:
        """Read the logs of all Pods, but those that were deleted."""
        logs = [own for own in self._group.logs() if not {*own} & {*self._group.deleted}]
        self.texts = [b"".join(path.read_bytes() for path in own if path.exists()) for own in logs]

    def made(self) -> int:
        """Return the last step that the slowest of the ranks made in this run; that of a new Pod counts."""
        return min((int(found[-1]) for text in self.texts if (found := _STEP.findall(text))), default=0)

    def begun(self) -> list[int]:
        """Return from which step each run of each rank went on, in their order."""
        return [int(found) for text in self.texts for found in _RESUMED.findall(text)]

    def steps_since(self) -> int:
        """Return how many steps the slowest rank made since it went on."""
        return min((len(_STEP.findall(_run(text))) for text in self.texts), default=0)

    def saves_ms(self, kind: bytes) -> list[float]:
        """Return what each save of a kind took."""
        return [float(ms) for text in self.texts for each, _, ms in _WROTE.findall(text) if each == kind]

    def shared(self) -> int:
        """Return the newest shared step after which all ranks made another one: then all have told of it."""
        written = [int(step) for text in self.texts for kind, step, _ in _WROTE.findall(text) if kind == b"shared"]
        return max((step for step in written if step < self.made()), default=0)


def _run(text: bytes) -> bytes:
    """Return what the newest run printed; nothing before its first collective."""
    last = max((match.end() for match in _RESUMED.finditer(text)), default=len(text))
    return text[last:]


def changed(folder: Path, framework: str, megabytes: int, *, keeps: bool) -> Any:
    """Return what makes an example's Pods those of this benchmark."""

    def change(pod: dict[str, Any]) -> None:
        (worker,) = pod["containers"]
        words = worker["command"]
        words[words.index("-m") + 1 :] = [RANK]
        shared = str(folder / "shared")
        values = {"PADDING_MB": str(megabytes), "CHECKPOINT_DIR": shared, "CHECKPOINTS_SHARED": "1"}
        values |= {"CHECKPOINT_EVERY": str(SHARED_EVERY), "STEPS": str(FOREVER), "FRAMEWORK": framework}
        if keeps:
            values["INPLACE_KEEP_DIR"] = "/keep"
            worker["volumeMounts"].append({"name": "keep", "mountPath": "/keep"})
            pod["volumes"].append({"name": "keep", "emptyDir": {"medium": "Memory"}})
        worker["env"] = [entry for entry in worker["env"] if entry["name"] not in values]
        worker["env"] += [{"name": name, "value": value} for name, value in values.items()]

    return change


async def measure(framework: str, figures: Figures, options: Any, rng: Random, *, keeps: bool) -> None:
    """Kill ranks, and delete Pods, of one group."""
    row, losses = ("memory", options.losses) if keeps else ("shared", 0)
    with tempfile.TemporaryDirectory(prefix="inplace-resume-", dir=SHM) as name:
        folder = Path(name)
        change = changed(folder, framework, options.mb, keeps=keeps)
        annotations = {"inplace.dev/failures": "backoff=0"}
        started = in_pods(folder, framework=framework, example=framework, annotations=annotations, change=change)
        async with started as group:
            ranks = Ranks(group)
            for number in range(options.kills + losses):
                await _reach(ranks, lambda: ranks.steps_since() >= STEPS_BETWEEN)
                await asyncio.sleep(rng.uniform(0, 0.5))
                loses_pod = number >= options.kills
                ranks.read()
                made, shared = ranks.made(), ranks.shared()
                began_s = time.monotonic()
                if loses_pod:
                    await group.delete_pod(rng)
                else:
                    os.kill(rng.choice(trainers(group.marker, RANK))[0], signal.SIGKILL)
                ranks.read()
                gone_on = len(ranks.begun()) + PODS
                await _reach(ranks, lambda: len(ranks.begun()) >= gone_on)  # noqa: B023 - it ends here
                # All say the same, or this has found a mistake.
                (step,) = {int(_RESUMED.findall(text)[-1]) for text in ranks.texts if _RESUMED.search(text)}
                what = f"{row}, Pod lost" if loses_pod else row
                figures.add(what, {"lost_steps": max(0, made - step), "s": time.monotonic() - began_s})
                if loses_pod:
                    figures.add(what, {"behind_newest_shared": max(0, shared - step)})
                print(f"{framework} {what} {number}: made {made}, on from {step}", file=sys.stderr)
            for kind in (b"local", b"shared"):
                for ms in ranks.saves_ms(kind):
                    figures.add(row, {f"save_{kind.decode()}_ms": ms})


async def _reach(ranks: Ranks, done: Any) -> None:
    try:
        async with asyncio.timeout(RUN_S_MAX):
            ranks.read()
            while not done():
                await asyncio.sleep(POLL_S)
                ranks.read()
    except TimeoutError:
        tails = b"\n".join(text[-TAIL_BYTES:] for text in ranks.texts).decode(errors="replace")
        raise SystemExit(f"expected the group to go on within {RUN_S_MAX:g} s, saw of each rank:\n{tails}") from None


def memcpy_ms(megabytes: int) -> float:
    """Return how long a copy of so many bytes takes."""
    source, target = bytearray(megabytes * 10**6), bytearray(megabytes * 10**6)
    began_s = time.monotonic()
    target[:] = source
    return (time.monotonic() - began_s) * 1e3


async def compare(framework: str, options: Any) -> Figures:
    """Measure both rows."""
    figures = Figures(
        f"{framework}: {PODS} Pods on {os.cpu_count()} cores, {options.mb} MB a rank, {options.kills} kills, "
        f"{options.losses} Pods lost",
        compared=[("memory", "shared")],
        most={("memory", "lost_steps"): 1},
    )
    rng = Random(1)
    for keeps in (True, False):
        await measure(framework, figures, options, rng, keeps=keeps)
    for _ in range(5):
        figures.add("limit", {"memcpy_ms": memcpy_ms(options.mb)})
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
