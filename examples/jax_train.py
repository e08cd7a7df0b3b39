"""
Train a small network with JAX, data-parallel over processes, and go on from the newest checkpoint after a restart.

The network learns what another, fixed one says of random points. A step has MICRO_BATCHES micro-batches, by default one
for each process. Process r of n takes the numbers r, r + n, r + 2n and so on, and XLA sums the gradients of all. So the
step is the same one with fewer processes. It depends on its number alone, so it gives the same loss in each run.

Every step gathers (epoch, step) from all processes, and a process that sees two of them ends with an error BEFORE it
uses the step's result: processes of two generations cannot train together.

With CHECKPOINTS_SHARED all have one folder, and process 0 saves the whole state; else each saves it in a folder of its
own. With `inplace.keep_dir` each also saves every step in memory. After a restart all go on from
`inplace.resume_step()`. Where nobody can say it, the newest state that any can read goes to all.

Environment: INPLACE_EPOCH (or EPOCH), JOB_INDEX, JOB_COMPLETION_INDEX, PODS_PER_JOB, WORLD_SIZE, COORDINATOR (process
0's DNS name), COORDINATOR_PORT, POD_IP, MICRO_BATCHES, CHECKPOINT_DIR, CHECKPOINTS_SHARED, CHECKPOINT_EVERY, STEPS (0
is until told), STEP_S (pause), PROGRAM_DIR (see `step_program`), INPLACE_HOSTS_FILE (instead of DNS, in the simulator).
"""

from __future__ import annotations

import hashlib
import os
import pickle
import socket
import sys
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jaxlib
import numpy as np
from jax.experimental import multihost_utils, serialize_executable
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import inplace

INPUTS, HIDDEN, SAMPLES = 16, 64, 64  # samples per micro-batch
LEARNING_RATE, MOMENTUM, SEED = 0.02, 0.9, 7
COMPILE_S_MAX = 300
CHECKPOINT_S_MAX = 60
CHECKPOINTS_KEPT = 2  # the newest may be broken
START_S_MAX = 120  # processes that do not all meet within this time start again
CONNECT_PAUSE_S = 0.05  # N processes ask process 0 at most 20 N times a second, until it listens
HEARTBEAT_S_MAX = 10  # JAX's default is 100
SAVED = 75  # the exit code after a save that was asked for, sysexits.h EX_TEMPFAIL: any code but 0 restarts the group
NO_CHECKPOINT = 73  # the exit code, sysexits.h EX_CANTCREAT: a restart in this Pod would fail again

State = dict[str, Any]  # arrays by name: the weights, and their momentum


class CheckpointError(Exception):
    """A checkpoint cannot be written."""


class MixedError(Exception):
    """Processes of two epochs or at two steps take part in one step."""


@dataclass(frozen=True)
class Settings:
    """What one process needs to know."""

    epoch: int
    rank: int
    world: int
    coordinator: str
    port: int
    pod_ip: str
    micro_batches: int
    folder: Path
    saves: bool
    is_shared: bool
    checkpoint_every: int
    steps: int
    step_s: float
    programs: str
    hosts_file: str

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Settings:
        """Read the settings; the rank counts over all Jobs of the replicatedJob."""
        per_job = int(env.get("PODS_PER_JOB") or 1)
        rank = int(env.get("JOB_INDEX") or 0) * per_job + int(env.get("JOB_COMPLETION_INDEX") or 0)
        world = int(env.get("WORLD_SIZE") or per_job)
        return cls(
            epoch=int(env.get("INPLACE_EPOCH") or env.get("EPOCH") or 0),
            rank=rank,
            world=world,
            coordinator=env.get("COORDINATOR") or "localhost",
            port=int(env.get("COORDINATOR_PORT") or 29400),
            pod_ip=env.get("POD_IP") or "127.0.0.1",
            micro_batches=int(env.get("MICRO_BATCHES") or world),
            folder=Path(env.get("CHECKPOINT_DIR") or "checkpoints"),
            saves=rank == 0 or not env.get("CHECKPOINTS_SHARED"),
            is_shared=bool(env.get("CHECKPOINTS_SHARED")),
            checkpoint_every=int(env.get("CHECKPOINT_EVERY") or 10),
            steps=int(env.get("STEPS") or 0),
            step_s=float(env.get("STEP_S") or 0),
            programs=env.get("PROGRAM_DIR", ""),
            hosts_file=env.get("INPLACE_HOSTS_FILE", ""),
        )


class Checkpoints:
    """The states in one folder, of this Pod or of all, each in a file of its own that is whole or absent."""

    def __init__(self, folder: Path, epoch: int, rank: int) -> None:
        self._folder = folder
        self._epoch = f"epoch-{epoch:09}"
        self._fresh = folder / f"{self._epoch}-rank-{rank}.new"  # nobody else writes it

    def check(self) -> None:
        """Raise CheckpointError now, and not after the steps before the first checkpoint."""
        with self._changing():
            self._fresh.touch()
            self._fresh.unlink()

    def newest(self, step: int | None = None) -> tuple[int, State | None]:
        """Return the newest step whose file can be read, or this one, with its state; 0 and None when there is none."""
        names = "step-*.npz" if step is None else f"step-{step:09}.npz"
        for path in sorted(self._folder.glob(names), reverse=True):
            try:
                with np.load(path, allow_pickle=False) as file:
                    return int(path.stem.removeprefix("step-")), {name: file[name] for name in file.files}
            except (OSError, EOFError, ValueError, zipfile.BadZipFile, zipfile.LargeZipFile) as error:
                say(f"skipped {path.name}, which cannot be read: {error}")
        return 0, None

    def write(self, step: int, state: State) -> None:
        """Write a checkpoint so that a crash leaves the old ones or the new one, never half of it."""
        with self._changing():
            with self._fresh.open("wb") as file:
                np.savez(file, **state)
                file.flush()
                os.fsync(file.fileno())
            self._fresh.replace(self._folder / f"step-{step:09}.npz")
            for old in sorted(self._folder.glob("step-*.npz"))[:-CHECKPOINTS_KEPT]:
                old.unlink(missing_ok=True)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Raise CheckpointError where the folder takes no file, or a later epoch writes there."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            for left in self._folder.glob("*.new"):
                if left.name < self._epoch:  # that epoch is over: if its process still writes, its rename fails
                    left.unlink(missing_ok=True)
            yield
        except OSError as error:
            with suppress(OSError):
                self._fresh.unlink()
            raise CheckpointError(
                f"expected to write checkpoints into {self._folder}, saw: {error.strerror}. The checkpoints that are "
                "there stay. Make room there, or let CHECKPOINT_DIR name another folder"
            ) from error


def resolve(settings: Settings) -> str:
    """Return process 0's address: from the simulator's hosts file if there is one, else its name, for DNS."""
    if not settings.hosts_file:
        return settings.coordinator
    for line in Path(settings.hosts_file).read_text().splitlines():
        address, *names = line.split()
        if settings.coordinator in names:
            return address
    raise OSError(f"{settings.coordinator} is not in {settings.hosts_file} yet")


def find_coordinator(settings: Settings) -> str:
    """Return process 0's address when it listens there; JAX itself asks again only after 1 s, and then after more.

    The name is resolved anew each time: a Pod that was replaced has another address.
    """
    deadline_s = time.monotonic() + START_S_MAX
    while True:
        try:
            address = resolve(settings)
            if settings.rank:
                socket.create_connection((address, settings.port), timeout=1).close()
        except OSError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(CONNECT_PAUSE_S)
        else:
            return address


def meet(settings: Settings) -> None:
    """Join the other processes of this epoch."""
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    # Its handler would swallow SIGTERM, and every restart would wait for SIGKILL.
    jax.config.update("jax_enable_preemption_service", False)
    jax.distributed.initialize(
        f"{find_coordinator(settings)}:{settings.port}",
        num_processes=settings.world,
        process_id=settings.rank,
        coordinator_bind_address=f"{settings.pod_ip}:{settings.port}",
        initialization_timeout=START_S_MAX,
        heartbeat_timeout_seconds=HEARTBEAT_S_MAX,
    )


def initial_state() -> State:
    """Return the state before the first step, the same everywhere."""
    rng = np.random.default_rng(SEED)
    weights = {
        "w1": rng.normal(size=(INPUTS, HIDDEN)) / INPUTS**0.5,
        "b1": np.zeros(HIDDEN),
        "w2": rng.normal(size=(HIDDEN, 1)) / HIDDEN**0.5,
        "b2": np.zeros(1),
    }
    zeros = {f"{name}.momentum": np.zeros_like(value) for name, value in weights.items()}
    return {name: value.astype(np.float32) for name, value in (weights | zeros).items()}


def resume(checkpoints: Checkpoints, memory: Checkpoints | None) -> tuple[int, State]:
    """Return the step from which all go on, and its state: that of the barrier, else the newest that any can read."""
    agreed = inplace.resume_step()
    if agreed is not None:  # the same for all processes, and all can load it
        held = next((held for place in (memory, checkpoints) if place and (held := place.newest(agreed)[1])), None)
        if held is None:
            raise FileNotFoundError(f"expected the state of step {agreed}, which was saved, saw none")
        return agreed, held
    mine, state = checkpoints.newest()
    steps = multihost_utils.process_allgather(np.int32(mine)).reshape(-1)
    giver = int(steps.argmax())
    if not steps[giver]:
        return 0, initial_state()
    given = multihost_utils.broadcast_one_to_all(state or initial_state(), is_source=jax.process_index() == giver)
    return int(steps[giver]), {name: np.asarray(value) for name, value in given.items()}


def step_program(everywhere: NamedSharding, arguments: tuple[Any, ...], folder: str) -> Any:
    """Return `update`, compiled: as this process left it in `folder` before a restart, or compiled now.

    JAX's own cache does not serve here: process 0 alone writes it, and on CPUs each process has a key of its own.
    """
    lowered = jax.jit(update, out_shardings=everywhere).lower(*arguments)
    if not folder:
        return lowered.compile()
    versions = f"{jax.__version__} {jaxlib.__version__} {jax.process_index()}/{jax.process_count()}"
    path = Path(folder) / hashlib.sha256(f"{versions} {lowered.as_text()}".encode()).hexdigest()
    try:
        return serialize_executable.deserialize_and_load(*pickle.loads(path.read_bytes()))  # noqa: S301 - our own file
    except FileNotFoundError:
        pass
    except Exception as error:  # noqa: BLE001 - whatever is wrong with the file, the program can be compiled
        say(f"compiles again, because {path} cannot be loaded: {type(error).__name__}: {error}")
    program = lowered.compile()
    try:  # the half of it that a kill may leave cannot be loaded
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(pickle.dumps(serialize_executable.serialize(program)))
    except OSError as error:
        say(f"the next start compiles again, because {path} cannot be written: {error}")
    return program


def batch(number: int, step: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the points of one micro-batch, (SAMPLES, INPUTS), and what the fixed network says of them."""
    teacher = np.random.default_rng(SEED + 1)
    first, second = teacher.normal(size=(INPUTS, 8)), teacher.normal(size=(8, 1))
    x = np.random.default_rng([SEED, number, step]).normal(size=(SAMPLES, INPUTS))
    return x.astype(np.float32), np.tanh(x @ first / INPUTS**0.5).dot(second).astype(np.float32)


def own_batches(settings: Settings, step: int) -> list[np.ndarray]:
    """Return this process's points of one step, their answers, and what each counts: 0 where it only fills up."""
    total, world = settings.micro_batches, settings.world
    numbers = range(settings.rank, -(-total // world) * world, world)
    parts = [np.full((SAMPLES, 1), (number < total) / (total * SAMPLES), np.float32) for number in numbers]
    batches = [(*batch(number, step), part) for number, part in zip(numbers, parts, strict=True)]
    return [np.stack(arrays)[np.newaxis] for arrays in zip(*batches, strict=True)]


def loss_of(weights: State, x: jax.Array, y: jax.Array, parts: jax.Array) -> jax.Array:
    """Return what a micro-batch of each process adds to the step's mean squared error."""
    hidden = jnp.tanh(x @ weights["w1"] + weights["b1"])
    return jnp.sum(parts * (hidden @ weights["w2"] + weights["b2"] - y) ** 2)


def update(state: State, *shares: jax.Array) -> tuple[State, jax.Array, jax.Array]:
    """Return the state after one step, the loss, and every process's mark."""
    *batches, marks = shares
    weights = {name: value for name, value in state.items() if not name.endswith(".momentum")}

    def add(sums: Any, one: Any) -> tuple[Any, None]:
        return jax.tree.map(jnp.add, sums, jax.value_and_grad(loss_of)(weights, *one)), None

    zeros = jnp.zeros(()), jax.tree.map(jnp.zeros_like, weights)
    rounds = [array.swapaxes(0, 1) for array in batches]  # in each one micro-batch of each process
    (loss, slopes), _ = jax.lax.scan(add, zeros, rounds)
    after = {}
    for name, value in weights.items():
        after[f"{name}.momentum"] = MOMENTUM * state[f"{name}.momentum"] + slopes[name]
        after[name] = value - LEARNING_RATE * after[f"{name}.momentum"]
    return after, loss, marks


def check_marks(marks: np.ndarray, epoch: int, step: int) -> None:
    """Raise MixedError unless every process is at this epoch and step, as its row (epoch, step, asked) says."""
    if (marks[:, :2] != (epoch, step)).any():
        seen = {rank: tuple(map(int, mark[:2])) for rank, mark in enumerate(marks)}
        raise MixedError(f"MIXED: expected every process at (epoch, step) = {(epoch, step)}, saw {seen} by rank")


def train(settings: Settings) -> bool:
    """Train to the last step, or until somebody asks a process to save; return whether the last step is done."""
    checkpoints = Checkpoints(settings.folder, settings.epoch, settings.rank)
    memory = Checkpoints(Path(folder), settings.epoch, settings.rank) if (folder := inplace.keep_dir()) else None
    if settings.saves:
        checkpoints.check()
    meet(settings)
    mesh = Mesh(np.array(jax.devices()), ("data",))
    everywhere, shared = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("data"))
    (step, held), written = resume(checkpoints, memory), False  # the checkpoint of the step before
    state = jax.tree.map(lambda value: jax.make_array_from_process_local_data(everywhere, value), held)
    say(f"rank={settings.rank} world={settings.world} epoch={settings.epoch} goes on from step {step}")
    starting = inplace.busy("compile", up_to_s=COMPILE_S_MAX)
    program, lost = None, None
    while settings.steps == 0 or step < settings.steps:
        began_s = time.monotonic()
        mark = np.array([[settings.epoch, step, inplace.save_requested()]], np.int32)
        local = (*own_batches(settings, step), mark)
        shares = [jax.make_array_from_process_local_data(shared, value) for value in local]
        if program is None:
            program = step_program(everywhere, (state, *shares), settings.programs)
        # BEFORE the wait for the others: the rank that hangs is then the one that is behind.
        inplace.progress(step, loss=lost)  # the last step's: this one's would be a wait
        state, loss, marks = program(state, *shares)
        marks = np.asarray(marks)
        check_marks(marks, settings.epoch, step)
        asked = marks[:, 2].any()  # of any process: all save after the same step
        if written and (not memory or settings.is_shared):  # all had written it BEFORE they took part in this step
            inplace.saved(step, shared=settings.is_shared)
        step += 1
        lost = float(loss)
        say(f"step={step} loss={lost:.9g} epoch={settings.epoch} rank={settings.rank}")
        starting.end()
        written = bool(asked) or step % settings.checkpoint_every == 0
        held = {name: np.asarray(value) for name, value in state.items()} if memory or written else {}
        if memory:
            try:
                memory.write(step, held)
                inplace.saved(step)
            except CheckpointError as error:  # after a restart all go on from an older step, or from a shared one
                say(f"rank={settings.rank}: step {step} is not kept in {folder}: {error.__cause__}")
        if settings.saves and written:
            with inplace.busy("checkpoint", up_to_s=CHECKPOINT_S_MAX):
                checkpoints.write(step, held)
        if asked and step != settings.steps:
            multihost_utils.sync_global_devices("saved")  # AFTER it all have saved: the first that ends ends all
            inplace.saved(step, shared=settings.is_shared)
            say(f"saved step={step} epoch={settings.epoch} rank={settings.rank}")
            return False
        time.sleep(max(0.0, began_s + settings.step_s - time.monotonic()))
    jax.distributed.shutdown()
    return True


def say(text: str) -> None:
    """Print a line at once."""
    print(text, flush=True)


def main() -> None:
    """Train; end with 0, 1, SAVED or NO_CHECKPOINT."""
    inplace.ready()  # with --standby this process may have been started early: then it waits for its epoch here
    settings = Settings.from_env(os.environ)
    try:
        if not train(settings):
            end_now(SAVED)
    except CheckpointError as error:
        say(f"rank={settings.rank}: {error}")
        end_now(NO_CHECKPOINT)
    except SystemExit as ending:  # sys.exit in the script or below it; its text goes where Python writes it
        if not isinstance(ending.code, int | None):
            print(ending.code, file=sys.stderr)
        end_now(ending.code if isinstance(ending.code, int) else int(ending.code is not None))
    except BaseException as error:  # noqa: BLE001 - a lost peer, a mixed step: whatever it is, the group restarts
        sys.excepthook(type(error), error, error.__traceback__)  # it prints, and leaves the line for the agent
        end_now(1)


def end_now(code: int) -> None:
    """End at once: what JAX does at the exit of a process may wait for peers that are gone."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(ValueError, OSError):  # closed, or its reader is gone
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
