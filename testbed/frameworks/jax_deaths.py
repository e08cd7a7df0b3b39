"""
Measure what JAX itself does when one of three processes dies or stops: the figures of docs/with-jax.md.

    python -m testbed.frameworks.jax_deaths

No agent takes part. Prints a line for each case: after how many seconds the others ended, and how.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from testbed.frameworks.venv import environment
from testbed.ports import free_ports

WORLD = 3
READY_S_MAX = 60.0
WATCHED_S = 30.0  # who is alive after so long is said to be alive

PEER = """
import json, os, sys, time
import jax, numpy as np
from jax.experimental import multihost_utils
case, rank, port = json.loads(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.config.update("jax_enable_preemption_service", case["preemption_service"])
jax.distributed.initialize(f"127.0.0.1:{port}", 3, rank, heartbeat_timeout_seconds=case["heartbeat_s"])
multihost_utils.process_allgather(np.int32(rank))
print("READY", flush=True)
try:
    while True:
        time.sleep(0.02)
        if case["collectives"]:
            multihost_utils.process_allgather(np.int32(rank))
except Exception as error:
    print(f"EXCEPTION {type(error).__name__}: {error}", flush=True)
    if case["ends_now"]:
        os._exit(1)
    raise
"""


@dataclass(frozen=True)
class Case:
    """What is done to whom; without `collectives` the processes only sleep."""

    name: str
    victim: int
    number: signal.Signals
    collectives: bool = True
    heartbeat_s: int = 10
    preemption_service: bool = False
    ends_now: bool = True


CASES = (
    Case("a process is killed", 1, signal.SIGKILL),
    Case("process 0 is killed", 0, signal.SIGKILL),
    Case(
        "a process is killed, and the others end by an ordinary exit",
        1,
        signal.SIGKILL,
        heartbeat_s=100,
        ends_now=False,
    ),
    Case("a process is killed while no collective runs", 1, signal.SIGKILL, collectives=False),
    Case("the same with a heartbeat of 2 s", 1, signal.SIGKILL, collectives=False, heartbeat_s=2),
    Case("process 0 is killed while no collective runs", 0, signal.SIGKILL, collectives=False),
    Case("a process is stopped", 1, signal.SIGSTOP),
    Case("process 0 is stopped", 0, signal.SIGSTOP),
    Case("SIGTERM with JAX's default, the preemption service", 1, signal.SIGTERM, preemption_service=True),
    Case("SIGTERM without the preemption service", 1, signal.SIGTERM),
)


@dataclass
class Peers:
    """The processes of one case."""

    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    logs: list[Path] = field(default_factory=list)

    def start(self, case: Case, folder: Path) -> None:
        """Start all, and wait until each has taken part in a collective."""
        (port,) = free_ports(1)
        options = {name: value for name, value in vars(case).items() if name not in ("name", "number")}
        for rank in range(WORLD):
            self.logs.append(folder / f"{rank}.log")
            command = [
                str(environment("jax") / "bin" / "python3"),
                "-c",
                PEER,
                json.dumps(options),
                str(rank),
                str(port),
            ]
            with self.logs[-1].open("wb") as log:
                env = {"PATH": os.environ["PATH"], "JAX_PLATFORMS": "cpu"}
                self.processes.append(subprocess.Popen(command, env=env, stdout=log, stderr=log))
        deadline_s = time.monotonic() + READY_S_MAX
        while not all("READY" in log.read_text() for log in self.logs):
            assert time.monotonic() < deadline_s, "expected three processes to meet, saw:\n" + self.logs[0].read_text()
            time.sleep(0.05)
        time.sleep(0.5)

    def watch(self) -> dict[int, tuple[float, int]]:
        """Return by rank after how many seconds a process ended, and its return code."""
        began_s, ends = time.monotonic(), dict[int, tuple[float, int]]()
        while time.monotonic() - began_s < WATCHED_S and len(ends) < WORLD:
            for rank, process in enumerate(self.processes):
                if rank not in ends and process.poll() is not None:
                    ends[rank] = round(time.monotonic() - began_s, 2), process.returncode
            time.sleep(0.005)
        return ends

    def kill(self) -> None:
        """End all of them."""
        for process in self.processes:
            process.kill()
            process.wait()


def run(case: Case) -> str:
    """Return what the processes did, in one line."""
    with tempfile.TemporaryDirectory(prefix="inplace-jax-deaths-") as folder:
        peers = Peers()
        try:
            peers.start(case, Path(folder))
            peers.processes[case.victim].send_signal(case.number)
            ends = peers.watch()
            raised = [rank for rank, log in enumerate(peers.logs) if "EXCEPTION" in log.read_text()]
        finally:
            peers.kill()
    words = []
    for rank in range(WORLD):
        how = "exception, " if rank in raised else ""
        words.append(
            f"{rank}: {how}" + (f"ended after {ends[rank][0]} s ({ends[rank][1]})" if rank in ends else "alive")
        )
    return f"{case.name} (process {case.victim}): {'; '.join(words)}"


def main() -> None:
    """Run every case."""
    for case in CASES:
        print(run(case), flush=True)


if __name__ == "__main__":
    main()
