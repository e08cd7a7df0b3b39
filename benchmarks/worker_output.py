"""
Measure what it costs that a guard passes its worker's output on, keeps the last 64 KiB, and looks for steps in it.

A worker writes lines of 100 bytes, each with a step: so many MB a second, 5 lines a second, and as fast as it can;
below a guard, below one with `--step-pattern`, and without one, in turns. The benchmark reads them as a container
runtime does. CPU is that of the kernel and the program, in seconds a second.

    python -m benchmarks.worker_output --json
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Final

from benchmarks.figures import Figures, flags
from inplace.common.protocol.link import Hello, Lifted, line_of
from testbed.component import cpu_seconds_of

LINE: Final = "step=1234567 " + "x" * 86
PATTERN: Final = "step=%d"
LINES_S: Final = 5  # of a script that prints now and then
BATCHES_S: Final = 100  # of lines, each one write
WORKER: Final = f"""
import os, sys, time
mb, batches_s = float(sys.argv[1]), int(sys.argv[2])
batch = ({LINE!r} + chr(10)) * max(1, round(mb * 1e4 / 100 or 650))
left, at_s = memoryview(batch.encode()), time.monotonic()
while True:
    rest = left
    while rest:
        rest = rest[os.write(1, rest):]
    at_s += 1 / batches_s
    if mb:
        time.sleep(max(0.0, at_s - time.monotonic()))
"""
READ_BYTES: Final = 65_536
ANSWER_S_MAX: Final = 30.0  # a guard that needs longer is broken, not slow
WARM_S: Final = 0.5
SLOW_MB_S: Final = LINES_S * 100 / 1e6
NAMES: Final = ("paced", "slow", "unpaced")
GUARDS: Final[Mapping[str, tuple[str, ...] | None]] = {
    "guard": (),
    "guard with a pattern": ("--step-pattern", PATTERN),
    "bare": None,
}


@contextmanager
def started(folder: Path, mb: float, options: Sequence[str] | None) -> Iterator[tuple[int, int, int]]:
    """Run a worker; give the descriptor of its output, its guard's process id (0 without one), and its own.

    Args:
        folder: of the link.
        mb: a second.
        options: of the guard; None: there is none.
    """
    worker = [sys.executable, "-c", WORKER, f"{mb:g}", str(LINES_S if mb == SLOW_MB_S else BATCHES_S)]
    if options is None:
        with subprocess.Popen(worker, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            try:
                yield child.stdout.fileno(), 0, child.pid
            finally:
                child.kill()
        return
    guard = [sys.executable, "-m", "inplace.agent", "guard", *options, "--", *worker]
    with lifted_guard(guard, os.environ, folder / "link") as (output, pid):
        os.read(output.fileno(), 1)  # the worker runs
        yield output.fileno(), pid, first_child(pid)


@contextmanager
def lifted_guard(command: Sequence[str], env: Mapping[str, str], link: Path) -> Iterator[tuple[IO[bytes], int]]:
    """Run a guard whose barrier is lifted as soon as it says hello; give its output and its process id."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.settimeout(ANSWER_S_MAX)
        listener.bind(str(link))
        listener.listen()
        own, pipe = {**env, "LINK_FILE": str(link)}, subprocess.PIPE
        with subprocess.Popen(command, env=own, stdout=pipe, stderr=subprocess.DEVNULL) as child:
            assert child.stdout is not None
            try:
                peer, _ = listener.accept()
                with peer:
                    peer.sendall(line_of(Hello()) + line_of(Lifted(1)))
                    yield child.stdout, child.pid
            finally:
                child.kill()
    link.unlink()


def first_child(pid: int) -> int:
    """Return the first process that a process forked."""
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process so far; 0 of none."""
    return cpu_seconds_of(pid) if pid else 0.0


def measure(folder: Path, mb: float, length_s: float, options: Sequence[str] | None) -> dict[str, float]:
    """Return MB a second, and CPU seconds a second of guard and worker."""
    with started(folder, mb, options) as (output, guard, worker):
        read, began_s = 0, time.monotonic() + WARM_S
        while time.monotonic() < began_s:
            os.read(output, READ_BYTES)
        before, began_s = [cpu_s(guard), cpu_s(worker)], time.monotonic()
        while (took_s := time.monotonic() - began_s) < length_s:
            read += len(os.read(output, READ_BYTES))
        used = [after - first for after, first in zip((cpu_s(guard), cpu_s(worker)), before, strict=True)]
    return {"mb_s": read / took_s / 1e6, "guard_cpu": used[0] / took_s, "worker_cpu": used[1] / took_s}


def run(rounds: int, mb: float, length_s: float) -> Figures:
    """Measure in turns."""
    figures = Figures(
        f"a worker's output, {rounds} rounds",
        compared=[
            pair
            for name in NAMES
            for pair in ((f"{name}, guard", f"{name}, bare"), (f"{name}, guard with a pattern", f"{name}, guard"))
        ],
    )
    for _ in range(rounds):
        for name, rate in zip(NAMES, (mb, SLOW_MB_S, 0.0), strict=True):
            for how, options in GUARDS.items():
                with TemporaryDirectory(dir="/dev/shm") as folder:  # as the volume: in memory
                    one = measure(Path(folder), rate, length_s, options)
                figures.add(f"{name}, {how}", one)
    return figures


def main() -> None:
    """Measure and print."""
    parser = flags(__doc__, rounds=5)
    parser.add_argument("--mb", type=float, default=50.0, help="MB a second of the worker that is paced")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    options = parser.parse_args()
    if options.mb <= 0 or options.seconds <= 0:
        parser.error("expected numbers greater than 0")
    run(options.rounds, options.mb, options.seconds).show(options)


if __name__ == "__main__":
    main()
