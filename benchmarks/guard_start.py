"""
Measure a guard of the image volume: from exec to the worker's exec, and memory.

It runs as process 1 of a PID namespace, below an overlay of this machine's root, and has a Python of its own at
/inplace (`images.agent_root`). The barrier is lifted as soon as the guard says hello. It needs root.

    python -m benchmarks.guard_start --json
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks.agent_start import rss_mb
from benchmarks.figures import Figures, flags
from benchmarks.worker_output import first_child, lifted_guard
from images import agent_root

WORKER: Final = ("/bin/sh", "-c", "date +%s%N; exec sleep 100")
# The date's own exec is part of both times; `chroot` and the guard lie between the two dates.
ENTER: Final = """
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root" && mkdir -p "$1/root/inplace" &&
mount --bind "$1/image" "$1/root/inplace" && mount --bind "$1/shared" "$1/root$1/shared" &&
mount -t proc proc "$1/root/proc" || exit 99
root=$1/root; shift; date +%s%N; exec chroot "$root" "$@"
"""


@contextmanager
def started(folder: Path, command: list[str]) -> Iterator[tuple[float, int]]:
    """Run a guard; give the milliseconds to its worker's exec, and the guard's process id."""
    words = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", ENTER, "sh", str(folder))
    env = {"PATH": os.environ["PATH"]}
    with lifted_guard((*words, *command, "--", *WORKER), env, folder / "shared" / "link") as (output, pid):
        began_ns, worker_ns = (int(output.readline()) for _ in range(2))
        yield (worker_ns - began_ns) / 1e6, first_child(pid)


def run(runs: int, folder: Path) -> Figures:
    """Measure `runs` starts, after one warm-up."""
    for name in ("image", "upper", "work", "root", "shared"):
        (folder / name).mkdir()
    agent_root.make(folder / "image")
    figures = Figures(f"a guard: to its worker's exec, and its memory; {runs} starts")
    for number in range(runs + 1):
        with started(folder, ["/inplace/bin/guard"]) as (ms, guard):
            if number:
                figures.add("guard", {"ms": ms, "rss_mb": rss_mb(guard)})
    return figures


def main() -> None:
    """Measure and print."""
    parser = flags(__doc__, runs=20)
    options = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("expected root, because a container needs namespaces and mounts")
    with TemporaryDirectory() as folder:
        run(options.runs, Path(folder)).show(options)


if __name__ == "__main__":
    main()
