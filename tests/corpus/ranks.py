"""
Run groups of ranks that fail, one after the other, in a framework's Python: a process that has it imported forks them.

    PYTHON -m tests.corpus.ranks FRAMEWORK CASES FOLDER      prints one JSON line for each case

The ranks train a small network together, over gloo. A rank is a process of its own with its own folder, output and
variables. The script's end is Python's own: the fork leaves through the module's last line, so hooks and exit handlers
run as ever.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import random
import selectors
import signal
import socket
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import inplace
from tests.corpus.kinds import KINDS, Moment

TIMEOUT_S: Final = 3.0  # of a collective where a rank hangs
PATIENCE_S: Final = 30.0  # of one where none does
HEARTBEAT_S: Final = 4
AFTER_S_MAX: Final = 8.0  # from the fault until whoever still runs is killed
CASE_S_MAX: Final = 40.0  # until the fault
STEP_S: Final = 0.02


@dataclass(frozen=True)
class Case:
    """One group that fails.

    Args:
        ranks: that have the fault.
        tells: the script calls `inplace.ready` and `inplace.progress`.
        end: how a rank ends that fails by an exception: "plain"; "finally", it leaves the group first, as a script does
            that cleans up; "late", an exit handler takes its time; "finally-late", it takes that after it left.
        pause_s: of a late end.
        seed: of the pauses.
    """

    name: str
    framework: str
    kind: str
    world: int
    ranks: list[int]
    step: int
    tells: bool
    end: str
    pause_s: float
    seed: int


@dataclass
class Rank:
    """One process of a group."""

    case: Case
    number: int
    folder: Path
    port: int
    code: int = 0

    def note(self, what: str) -> None:
        """Leave a moment for whoever records this case."""
        (self.folder / what).write_text(f"{time.time():.6f}")

    def train(self) -> None:
        """Train until the fault comes, or that of another rank shows."""
        try:
            self._train()
        except SystemExit as error:
            self.code = error.code if isinstance(error.code, int) else int(error.code is not None)
            raise
        except BaseException:
            self.code = 1
            raise

    def end(self) -> None:
        """End without unloading the framework, AFTER all hooks and exit handlers: that says nothing, and takes long."""
        end_now(self.code)

    def _train(self) -> None:
        kind = KINDS[self.case.kind]
        random.seed(self.case.seed + self.number)
        if self.case.tells:
            inplace.ready()  # as the examples do it: from here on the end of this process is told
        try:
            if kind.at == "start":
                self._fail(-1)
            step = self._torch() if self.case.framework == "torch" else self._jax()
            for number in range(10_000):
                self._fail(number)
                if self.case.tells:
                    inplace.progress(number)
                step()
                time.sleep(STEP_S * random.random())
        except Exception:
            if self.number in self.case.ranks:
                self._clean_up()
            if self.case.framework == "jax" and not self.case.tells:
                traceback.print_exc()
                end_now(1)  # else JAX's exit handler waits for its peers, and nobody could know of the failure
            raise

    def _fail(self, step: int) -> None:
        kind, case = KINDS[self.case.kind], self.case
        if self.number not in case.ranks or (step != case.step and kind.at != "start"):
            return
        mounts = self.folder.parent.parent
        moment = Moment(self.number, case.world, step, case.framework, self.folder, mounts / "full", mounts / "ro")
        self.note("fault")
        kind.do(moment)

    def _clean_up(self) -> None:
        """Do what a script does between its exception and its end."""
        if self.case.end.startswith("finally"):
            importlib.import_module("torch.distributed").destroy_process_group()
        if self.case.end == "late":
            atexit.register(time.sleep, self.case.pause_s)
        elif self.case.end == "finally-late":
            time.sleep(self.case.pause_s)

    def _torch(self) -> Any:
        torch, dist = importlib.import_module("torch"), importlib.import_module("torch.distributed")
        torch.set_num_threads(1)
        delta = importlib.import_module("datetime").timedelta
        dist.init_process_group("gloo", timeout=delta(seconds=self._patience_s))
        torch.manual_seed(self.case.seed)
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

        def step() -> None:
            optimizer.zero_grad()
            model(torch.randn(4, 8)).square().mean().backward()
            optimizer.step()

        return step

    def _jax(self) -> Any:
        jax, np = importlib.import_module("jax"), importlib.import_module("numpy")
        gather = importlib.import_module("jax.experimental.multihost_utils").process_allgather
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(
            f"127.0.0.1:{self.port}", self.case.world, self.number, heartbeat_timeout_seconds=HEARTBEAT_S
        )
        weights = jax.numpy.zeros(8)
        grad = jax.jit(jax.grad(lambda w, x: ((x @ w - 1.0) ** 2).mean()))

        def step() -> None:
            nonlocal weights
            mine = grad(weights, np.random.default_rng(self.number).normal(size=(4, 8)))
            weights = weights - 0.01 * gather(np.asarray(mine)).mean(axis=0)

        return step

    @property
    def _patience_s(self) -> float:
        return TIMEOUT_S if KINDS[self.case.kind].hangs else PATIENCE_S


def end_all(ranks: Sequence[Rank]) -> None:
    """End with what this process is: nothing where it forked ranks alone."""
    for rank in ranks:
        rank.end()


def end_now(code: int) -> None:
    """End without exit handlers."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def run(case: Case, folder: Path) -> Rank | None:
    """Run a case and print what it left; in each rank return that rank."""
    place, port = folder / f"case-{os.urandom(4).hex()}", _free_port()
    began_s, pids = time.time(), dict[int, int]()
    for number in range(case.world):
        (place / str(number) / "progress").mkdir(parents=True)
        pid = os.fork()
        if pid == 0:
            return _become(Rank(case, number, place / str(number), port))
        pids[number] = pid
    ends = _watch(pids, place, case, began_s)
    for path in (folder / "full").glob(f"{case.framework}-*"):
        path.unlink()
    found = []
    for number, (code, at_s) in sorted(ends.items()):
        fault = place / str(number) / "fault"
        found.append(
            {
                "rank": number,
                "code": code,
                "at_s": at_s,
                "fault_s": float(fault.read_text()) if fault.exists() else None,
            }
        )
    print(json.dumps({"case": case.__dict__, "place": str(place), "ranks": found}), flush=True)
    return None


def _become(rank: Rank) -> Rank:
    """Make this fork a rank."""
    os.setsid()
    out = os.open(rank.folder / "out", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for fd in (1, 2):
        os.dup2(out, fd)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.environ.update(
        RANK=str(rank.number),
        WORLD_SIZE=str(rank.case.world),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(rank.port),
        INPLACE_EPOCH="1",
    )
    if rank.case.tells:
        os.environ["INPLACE_PROGRESS_DIR"] = str(rank.folder / "progress")
    return rank


def _watch(pids: dict[int, int], place: Path, case: Case, began_s: float) -> dict[int, tuple[int | None, float]]:
    """Return of each rank its exit code and when it ended; no code where it had to be killed."""
    ends = dict[int, tuple[int | None, float]]()
    with selectors.DefaultSelector() as waiting:
        for number, pid in pids.items():
            waiting.register(os.pidfd_open(pid), selectors.EVENT_READ, (number, pid))
        until_s = began_s + CASE_S_MAX
        has_failed = False
        while len(ends) < len(pids) and time.time() < until_s:
            for key, _ in waiting.select(0.05):
                number, pid = key.data
                ends[number] = _code(os.waitpid(pid, 0)[1]), time.time()
                waiting.unregister(key.fileobj)
                os.close(key.fd)
            if not has_failed and (ends or any((place / str(rank) / "fault").exists() for rank in case.ranks)):
                has_failed, until_s = True, time.time() + AFTER_S_MAX
        for key in list(waiting.get_map().values()):
            os.close(key.fd)
    for number, pid in pids.items():
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)  # with what it started
        if number not in ends:
            os.waitpid(pid, 0)
            ends[number] = None, time.time()
    return ends


def _code(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def main(framework: str, cases: str, folder: str) -> Rank | None:
    """Run all cases; return a rank in each fork of this process."""
    ends = list[Rank]()
    atexit.register(end_all, ends)  # the first one here is the last one to run
    os.environ |= {"OMP_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu"}
    importlib.import_module(framework)
    importlib.import_module("numpy")
    if framework == "torch":
        for name in ("torch.utils.data", "torch.optim", "torch.nn.parallel", "torch.distributed.distributed_c10d"):
            importlib.import_module(name)
        importlib.import_module("torch").optim.SGD([importlib.import_module("torch").zeros(1)], lr=1.0)
    else:
        importlib.import_module("jax.experimental.multihost_utils")
    gc.collect()
    gc.freeze()  # else each fork copies the pages of all modules when it ends
    for line in Path(cases).read_text().splitlines():
        rank = run(Case(**json.loads(line)), Path(folder))
        if rank is not None:
            ends.append(rank)
            return rank
    return None


if __name__ == "__main__":
    this = main(*sys.argv[1:])
    if this is not None:
        this.train()
