"""
Measure one call of `inplace.progress`, and one of `inplace.saved`: the microseconds that a training loop pays for each.

Compared with, in turns within one run, what a script would do without it: write the step number into a temporary file
and rename that (`rename`), or open the file and write (`open`). Printed are the median, the least and the most of so
many batches, on the file system of --folder.

    python -m benchmarks.progress --json
    python -m benchmarks.progress --json --folder /dev/shm
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import inplace
from benchmarks.figures import Figures, flags

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
        "saved": inplace.saved,
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
    """Measure and print."""
    parser = flags(__doc__)
    parser.add_argument("--folder", help="where the files lie; a temporary folder's file system if not said")
    options = parser.parse_args()
    figures = Figures(
        f"microseconds a step, of {BATCHES} batches of {CALLS} calls",
        compared=[("progress", "rename"), ("progress", "open")],
    )
    with TemporaryDirectory(dir=options.folder) as folder:
        for kind, batches in measure(Path(folder)).items():
            figures.rows[kind] = {"us": batches}
    figures.show(options)


if __name__ == "__main__":
    main()
