"""
Measure how long a training stands still after a fault, in one run for several systems.

    python -m benchmarks.recovery [jax] [torch] [--systems A,B] [--faults A,B] [--rounds N] [--json]

The systems are those of `benchmarks.systems`: four ranks that train one example, and save each ten steps. One clock:
from the fault until every rank has made a step of its next run. In each round each system starts one group, which meets
all faults, one after the other:

    kill       SIGKILL to a rank
    two        SIGKILL to two ranks at once
    again      SIGKILL to a rank, and AGAIN_S later to another one, while the group recovers; from the second one
    hang       SIGSTOP to a rank; a system that does not end that rank within HANG_S_MAX has failed
    place      SIGKILL to all processes of a rank's place: agent or launcher, guard, rank
    lost       a rank's Pod is deleted; a launcher's place is killed, and away for as long as a Job waits

`FAULT_s` are seconds, `FAULT_steps` how many steps are made again. `FAULT_failed` counts groups that did not go on
within RUN_S_MAX: they have no seconds, and the next fault meets a new group. A fault waits until all standbys are
ready, where there are any: that is the state in which a group is most of its time. `standby_rss_mb` is what one holds,
in MB of 10^6 bytes. The report divides each system by the first: torchrun's own elastic restart, or, for JAX, which has
none, a loop that kills all processes and starts them again.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Final

from benchmarks.figures import Figures, flags
from benchmarks.resume import TAIL_BYTES, gone_on_from, made
from benchmarks.systems import PODS, POLL_S, RESUMED, STEPS_BETWEEN, SYSTEMS, Group, System

FAULTS: Final = ("kill", "two", "again", "hang", "place", "lost")
AGAIN_S: Final = 1.0
HANG_S_MAX: Final = 60.0


async def strike(group: Group, fault: str, rng: Random) -> int | None:
    """Let a fault happen; return the process that hangs since then."""
    ranks = rng.sample(group.ranks(), 2)
    match fault:
        case "kill" | "two":
            for pid in ranks[: 1 + (fault == "two")]:
                os.kill(pid, signal.SIGKILL)
        case "again":
            os.kill(ranks[0], signal.SIGKILL)
            await asyncio.sleep(AGAIN_S)
            while not (ranks := group.ranks()):  # noqa: ASYNC110 - all ended; then the first one that is started again
                await asyncio.sleep(POLL_S)
            os.kill(rng.choice(ranks), signal.SIGKILL)
        case "hang":
            os.kill(ranks[0], signal.SIGSTOP)
            return ranks[0]
        case "place":
            group.kill_place(rng)
        case "lost":
            await group.lose_place(rng)
    return None


async def suffer(group: Group, system: System, fault: str, figures: Figures, rng: Random) -> None:
    """Let a group meet one fault, and add what that cost."""
    await group.reach(group.resumed, PODS * STEPS_BETWEEN, system.standbys)
    await asyncio.sleep(rng.uniform(0, 0.5))
    stopped, before = await strike(group, fault, rng), group.texts()
    began_s, resumed = time.monotonic(), sum(len(RESUMED.findall(text)) for text in before)
    try:
        async with asyncio.timeout(HANG_S_MAX if stopped is not None else None):
            await group.reach(resumed + PODS, PODS)
    except TimeoutError:
        if stopped is None or time.monotonic() - began_s < HANG_S_MAX:
            raise
        figures.add(system.key, {f"{fault}_failed": 1})
        os.kill(stopped, signal.SIGKILL)  # the next fault meets a group that trains
        await group.reach(resumed + PODS, PODS)
        return
    seconds, steps = time.monotonic() - began_s, max(0, made(before) - gone_on_from(group.texts()))
    figures.add(system.key, {f"{fault}_s": seconds, f"{fault}_steps": steps})
    print(f"{system.key} {fault}: {seconds:.2f} s, {steps} steps again", file=sys.stderr, flush=True)


async def measure(system: System, faults: Sequence[str], figures: Figures, rng: Random) -> None:
    """Let a group of one system meet all faults; where it does not go on, another one meets those that are left."""
    while faults:
        with tempfile.TemporaryDirectory(prefix="inplace-recovery-") as folder:
            async with system.start(Path(folder)) as group:
                fault = "start"
                try:
                    await group.reach(PODS, 0)
                    while faults:
                        fault, *faults = faults
                        await suffer(group, system, fault, figures, rng)
                except TimeoutError:
                    figures.add(system.key, {f"{fault}_failed": 1})
                    faults = faults if fault != "start" else ()  # another group would not start either
                    tails = b"\n".join(text[-TAIL_BYTES:] for text in group.texts()).decode(errors="replace")
                    print(f"{system.key} {fault}: the group does not go on\n{tails}", file=sys.stderr, flush=True)
                if group.standbys_mb:
                    figures.add(system.key, {"standby_rss_mb": max(group.standbys_mb)})


async def compare(framework: str, systems: Sequence[System], faults: Sequence[str], rounds: int) -> Figures:
    """Measure all systems in each round."""
    figures = Figures(
        f"{framework}: {PODS} ranks on {os.cpu_count()} cores; from the fault to a new step of every rank",
        compared=[(system.key, systems[0].key) for system in systems[1:]],
    )
    rng = Random(1)
    for system in list(systems) * rounds:
        await measure(system, faults, figures, rng)
    return figures


def main() -> None:
    """Measure and print."""
    parser = flags(__doc__, rounds=3)
    names = list(dict.fromkeys(system.key for systems in SYSTEMS.values() for system in systems))
    parser.add_argument("framework", nargs="*", default=sorted(SYSTEMS), help=f"of {', '.join(SYSTEMS)}; default: all")
    parser.add_argument("--systems", default=",".join(names), help=f"default: {','.join(names)}")
    parser.add_argument("--faults", default=",".join(FAULTS), help=f"default: {','.join(FAULTS)}")
    options = parser.parse_args()
    chosen = {"systems": (options.systems.split(","), names), "faults": (options.faults.split(","), FAULTS)}
    for option, (given, known) in chosen.items():
        if unknown := sorted({*given} - {*known}):
            parser.error(f"--{option}: expected names out of {', '.join(known)}, saw {', '.join(unknown)}")
    for framework in options.framework:
        systems = [system for system in SYSTEMS[framework] if system.key in chosen["systems"][0]]
        asyncio.run(compare(framework, systems, chosen["faults"][0], options.rounds)).show(options)


if __name__ == "__main__":
    main()
