"""
Compare the start of the one-file agent with the installed agent's: from exec to its announcement visible.

Three ways to start the same agent, in turns within one run, against the embedded API server: `python -m inplace.agent`
with byte code on disk, the file with byte code for this Python, and the file with sources only, as another Python runs
it. `benchmarks.agent_start` compares the installed agent with others.

    python -m benchmarks.agent_pyz --json
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import time
from contextlib import aclosing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.agent_start import JOBSET, NAMESPACE, announcements, prepare
from benchmarks.api_backend import Backend, open_backend
from inplace.cli.agent_pyz import SOURCES, build
from testbed.ports import free_ports

VISIBLE_S_MAX = 30.0  # an agent that needs longer is broken, not slow


async def start_ms(backend: Backend, command: list[str], name: str) -> float:
    """Start an agent for Pod `name`; return the milliseconds until its announcement of epoch 2 is seen."""
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(SOURCES),
        "KUBECONFIG": str(backend.agent_kubeconfig),
        "NAMESPACE": NAMESPACE,
        "POD_NAME": name,
        "JOBSET_NAME": JOBSET,
        "PREVIOUS_EPOCH": "1",
        "BARRIER_ADDRESS": "127.0.0.1",
        "BARRIER_PORT": str(free_ports(1)[0]),
        "RESTART_POD_IN_PLACE_EXIT_CODE": "88",
    }
    async with aclosing(announcements(backend, name)) as seen:
        await anext(seen)  # the watch is open BEFORE the agent starts
        began = time.perf_counter()
        process = await asyncio.create_subprocess_exec(*command, env=environment, stdout=asyncio.subprocess.DEVNULL)
        try:
            async with asyncio.timeout(VISIBLE_S_MAX):
                while await anext(seen) != 2:
                    pass
            return (time.perf_counter() - began) * 1e3
        finally:
            process.kill()
            await process.wait()


async def run(runs: int, folder: Path) -> dict[str, Any]:
    """Measure `runs` starts of each kind, in turns, after one warm-up each."""
    compiled, sources = build(folder / "compiled.pyz"), build(folder / "sources.pyz", [])
    commands = {
        "installed": [sys.executable, "-m", "inplace.agent"],
        "file": [sys.executable, str(compiled)],
        "sources": [sys.executable, str(sources)],
    }
    taken: dict[str, list[float]] = {kind: [] for kind in commands}
    async with open_backend("simulator", NAMESPACE) as backend:
        await prepare(backend, [f"{kind}-{i}" for kind in commands for i in range(runs + 1)])
        for i in range(runs + 1):
            for kind, command in commands.items():
                taken[kind].append(await start_ms(backend, command, f"{kind}-{i}"))
    medians = {kind: statistics.median(samples[1:]) for kind, samples in taken.items()}
    return {
        "runs": runs,
        "bytes": compiled.stat().st_size,
        **{f"{kind}_median_ms": round(median, 1) for kind, median in medians.items()},
        **{f"{kind}_ratio": round(medians[kind] / medians["installed"], 2) for kind in ("file", "sources")},
    }


def main() -> None:
    """Print the comparison, or one JSON object with --json."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.agent_pyz", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    parser.add_argument("--runs", type=int, default=10, help="measured starts of each kind")
    options = parser.parse_args()
    if options.runs < 1:
        parser.error(f"--runs: expected 1 or more, saw {options.runs}")
    with TemporaryDirectory() as folder:
        result = asyncio.run(run(options.runs, Path(folder)))
    print(
        f"exec to visible announcement, embedded API server, median of {options.runs}:\n"
        f"  installed               {result['installed_median_ms']:7.1f} ms\n"
        f"  one file, byte code     {result['file_median_ms']:7.1f} ms  {result['file_ratio']:.2f}x\n"
        f"  one file, sources only  {result['sources_median_ms']:7.1f} ms  {result['sources_ratio']:.2f}x",
        file=sys.stderr,
    )
    if options.json:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
