"""
Measure one call of `inplace.progress`: the microseconds that a training loop pays for each step.

Compared with, in turns within one run, what a script would do without it: write the step number into a temporary file
and rename that (`rename`), or open the file and write (`open`). Printed are the median, the least and the most of so
many batches, on the file system of --folder.

    python -m benchmarks.progress --json
    python -m benchmarks.progress --json --folder /dev/shm
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import inplace

BATCHES = 41
CALLS = 2_000  # in one batch: long enough for the clock, short enough that a batch escapes the neighbours


def us_of(call: Callable[[int], object]) -> float:
    """Return the microseconds of one call, of a batch."""
    began = time.perf_counter()
    for step in range(CALLS):
        call(step)
    return (time.perf_counter() - began) / CALLS * 1e6


def rename(path: Path) -> Callable[[int], None]:
    """Return a call that writes a step beside a file and renames it there."""
    fresh, there = f"{path}.new", str(path)

    def write(step: int) -> None:
        with open(fresh, "w") as file:  # noqa: PTH123 - as a script would
            file.write(f"{step}\n")
        os.replace(fresh, there)  # noqa: PTH105

    return write


def overwrite(path: Path) -> Callable[[int], None]:
    """Return a call that opens a file and writes a step."""
    there = str(path)

    def write(step: int) -> None:
        with open(there, "w") as file:  # noqa: PTH123
            file.write(f"{step}\n")

    return write


def measure(folder: Path) -> dict[str, list[float]]:
    """Return the microseconds of each batch of each kind, in turns, after one batch to warm up."""
    os.environ |= {"INPLACE_PROGRESS_DIR": str(folder), "INPLACE_EPOCH": "1", "RANK": "0"}
    calls: Mapping[str, Callable[[int], object]] = {
        "progress": inplace.progress,
        "rename": rename(folder / "rename"),
        "open": overwrite(folder / "open"),
    }
    taken: dict[str, list[float]] = {kind: [] for kind in calls}
    for batch in range(BATCHES + 1):
        for kind, call in calls.items():
            us = us_of(call)
            if batch:
                taken[kind].append(us)
    assert (folder / "rank-0").read_bytes().startswith(b"v1 1 %d " % (CALLS - 1))
    return taken


def main() -> None:
    """Print the comparison, or one JSON object with --json."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.progress", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    parser.add_argument("--folder", help="where the files lie; a temporary folder's file system if not said")
    options = parser.parse_args()
    with TemporaryDirectory(dir=options.folder) as folder:
        taken = measure(Path(folder))
    result: dict[str, float] = {"batches": BATCHES, "calls": CALLS}
    for kind, batches in taken.items():
        least, middle, most = min(batches), statistics.median(batches), max(batches)
        result |= {f"{kind}_us": round(middle, 2), f"{kind}_us_min": round(least, 2), f"{kind}_us_max": round(most, 2)}
        print(f"{kind:10} {middle:7.2f} us a step ({least:.2f} to {most:.2f})", file=sys.stderr)
    result["rename_ratio"] = round(result["progress_us"] / result["rename_us"], 3)
    if options.json:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
