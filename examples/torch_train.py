"""
Train a small network with PyTorch, DistributedDataParallel and gloo, below torchrun or without it.

A step has MICRO_BATCHES micro-batches, by default one for each rank. Rank r of n takes the numbers r, r + n, r + 2n and
so on: with fewer ranks it is the same step. With CHECKPOINTS_SHARED all have one folder, and every K steps rank 0 keeps
a checkpoint, whole or not at all; else the first process of each Pod does. Where the Pod has memory that outlives a
restart (`inplace.keep_dir`), every step is also saved there. A new run goes on from `inplace.resume_step()`. Where
nobody can say it, it is the newest checkpoint that any rank can read, so a Pod with a disk of its own may be replaced.

In each step all ranks compare (epoch, step) BEFORE their gradients meet. Ranks of two runs never train together: the
first difference ends the process with exit code 1.

Environment: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT (torchrun sets them; a manifest may do it as well),
LOCAL_RANK, MICRO_BATCHES, CHECKPOINT_DIR, CHECKPOINTS_SHARED, CHECKPOINT_EVERY, STEPS (0 is until told), STEP_S, SEED,
PEER_TIMEOUT_S, INPLACE_EPOCH, INPLACE_PROGRESS_DIR (see `inplace.progress`), INPLACE_HOSTS_FILE (instead of DNS, in
the simulator).
"""

from __future__ import annotations

import io
import os
import pickle
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import inplace

FEATURES = 16
HIDDEN = 64
SAMPLES = 1024  # of one micro-batch
LEARNING_RATE = 0.02
CHECKPOINT_S_MAX = 60
SAVED = 75  # the exit code after a save that was asked for, sysexits.h EX_TEMPFAIL: any code but 0 restarts the group
NO_CHECKPOINT = 73  # exit code: a restart would not help; torchrun makes 1 of it
CHECKPOINTS_KEPT = 2  # one may be newer than what the slowest Pod has
CONNECT_PAUSE_S = 0.05  # N ranks ask rank 0 at most 20 N times a second, until it listens
UNREADABLE = (OSError, EOFError, RuntimeError, ValueError, TypeError, pickle.UnpicklingError)


class CheckpointError(Exception):
    """A checkpoint cannot be written."""


class MixedRunsError(Exception):
    """Two ranks are at different epochs or steps."""


@dataclass(frozen=True)
class Settings:
    """What one process needs to know beside what PyTorch reads from the environment."""

    epoch: int
    rank: int
    micro_batches: int
    local_rank: int
    is_shared: bool
    folder: Path
    checkpoint_every: int
    steps: int
    step_s: float
    seed: int
    peer_timeout_s: float

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Settings:
        """Read the settings; without an agent the epoch is 0."""
        return cls(
            epoch=int(env.get("INPLACE_EPOCH") or 0),
            rank=int(env["RANK"]),
            micro_batches=int(env.get("MICRO_BATCHES") or env["WORLD_SIZE"]),
            local_rank=int(env.get("LOCAL_RANK") or 0),
            is_shared=bool(env.get("CHECKPOINTS_SHARED")),
            folder=Path(env.get("CHECKPOINT_DIR") or "checkpoints"),
            checkpoint_every=int(env.get("CHECKPOINT_EVERY") or 10),
            steps=int(env.get("STEPS") or 0),
            step_s=float(env.get("STEP_S") or 0),
            seed=int(env.get("SEED") or 7),
            peer_timeout_s=float(env.get("PEER_TIMEOUT_S") or 1800),
        )

    @property
    def saves(self) -> bool:
        """Say whether this process writes the checkpoints of its folder."""
        return (self.rank if self.is_shared else self.local_rank) == 0


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

    def newest(self, step: int | None = None) -> dict[str, Any]:
        """Return the newest state that can be read, or this one; one of step 0 without weights if there is none."""
        names = "step-*.pt" if step is None else f"step-{step:09}.pt"
        for path in sorted(self._folder.glob(names), reverse=True):
            try:
                return {**torch.load(path, weights_only=True), "step": int(path.stem.removeprefix("step-"))}
            except UNREADABLE as error:
                say(f"skipped {path.name}, which cannot be read: {str(error).partition(chr(10))[0][:200]}")
        return {"step": 0}

    def write(self, step: int, state: Mapping[str, Any]) -> None:
        """Write a checkpoint so that a crash leaves the old ones or the new one, never half of it."""
        body = io.BytesIO()  # where a file cannot take it, `torch.save` does not say why
        torch.save(dict(state), body)
        with self._changing():
            with self._fresh.open("wb") as file:
                file.write(body.getbuffer())
                file.flush()
                os.fsync(file.fileno())
            self._fresh.replace(self._folder / f"step-{step:09}.pt")
            for old in sorted(self._folder.glob("step-*.pt"))[:-CHECKPOINTS_KEPT]:
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


class Trainer:
    """One rank's model and optimizer; every rank has the same weights after every step."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._world = dist.get_world_size()
        torch.manual_seed(settings.seed)
        self._truth = torch.randn(FEATURES) / 3
        self._network = nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, 1))
        self._model = DistributedDataParallel(self._network)
        self._optimizer = torch.optim.SGD(self._network.parameters(), lr=LEARNING_RATE, momentum=0.9)
        self._waited_s = 0.0  # for the others, in the last step

    def resume(self, checkpoints: Checkpoints, memory: Checkpoints | None) -> int:
        """Load the state from which all go on: that of the barrier, else the newest that any can read; return its step.

        Raises:
            FileNotFoundError: the step of the barrier is not there; the group then goes on from an older one.
        """
        agreed = inplace.resume_step()
        if agreed:  # the same for all ranks, and all can load it
            for place in filter(None, (memory, checkpoints)):
                if (state := place.newest(agreed))["step"]:
                    self._load(state)
                    return agreed
            raise FileNotFoundError(f"expected the state of step {agreed}, which was saved, saw none")
        state = checkpoints.newest()
        steps = [int(step) for (step,) in self._gather(state["step"])]
        newest = max(steps)
        if any(step != newest for step in steps):
            holder = steps.index(newest)
            sent = [state]
            dist.broadcast_object_list(sent, src=holder)
            if state["step"] != newest:
                say(f"rank={self._settings.rank} takes the checkpoint of step {newest} from rank {holder}")
            (state,) = sent
        if newest:
            self._load(state)
        return newest

    def _load(self, state: Mapping[str, Any]) -> None:
        self._network.load_state_dict(state["model"])
        self._optimizer.load_state_dict(state["optimizer"])

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint holds."""
        return {"model": self._network.state_dict(), "optimizer": self._optimizer.state_dict()}

    def train_step(self, step: int) -> tuple[float, bool]:
        """Make one step; return the mean loss of all ranks, and whether any of them was asked to save.

        Raises:
            MixedRunsError: a rank of another run, or at another step, took part.
        """
        *early, last = range(self._settings.rank, self._settings.micro_batches, self._world)
        self._optimizer.zero_grad()
        mine = 0.0
        with self._model.no_sync():  # these gradients meet those of the others with the last ones
            for number in early:
                loss = self._loss(number, step)
                loss.backward()
                mine += loss.item()
        loss = self._loss(last, step)
        mine += loss.item()
        # BEFORE the wait for the others: the rank that hangs is then the one that is behind.
        inplace.progress(step, loss=mine, waited_s=self._waited_s)
        began_s = time.monotonic()
        told = self._gather(self._settings.epoch, step, mine, inplace.save_requested())
        self._waited_s = time.monotonic() - began_s  # of the time until the next call
        for rank, (epoch, at, *_) in enumerate(told):
            if (epoch, at) != (self._settings.epoch, step):
                raise MixedRunsError(
                    f"MIXED: expected every rank at epoch {self._settings.epoch}, step {step}, saw rank {rank} at "
                    f"epoch {epoch:.0f}, step {at:.0f}; this rank ends"
                )
        loss.backward()
        self._optimizer.step()
        return sum(each for _, _, each, _ in told) / len(told), any(asked for *_, asked in told)

    def _loss(self, number: int, step: int) -> Tensor:
        """Return what a micro-batch adds to this rank's loss; the mean of the ranks' is that of all micro-batches."""
        samples, targets = self._batch(number, step)
        loss = nn.functional.mse_loss(self._model(samples).squeeze(1), targets)
        return loss * (self._world / self._settings.micro_batches)

    def _batch(self, number: int, step: int) -> tuple[Tensor, Tensor]:
        """Return one micro-batch of one step: the same in every run with this seed."""
        seed = (self._settings.seed * 1_000_003 + step) * self._settings.micro_batches + number
        rng = torch.Generator().manual_seed(seed)
        samples = torch.randn(SAMPLES, FEATURES, generator=rng)
        return samples, torch.tanh(samples @ self._truth)

    def _gather(self, *numbers: float) -> list[list[float]]:
        """Return the numbers of every rank, in rank order; float64 holds an epoch and a step exactly."""
        mine = torch.tensor(numbers, dtype=torch.float64)
        found = [torch.empty_like(mine) for _ in range(self._world)]
        dist.all_gather(found, mine)
        return [each.tolist() for each in found]


def train(settings: Settings) -> bool:
    """Train to the last step, or until somebody asks a rank to save; return whether the last step is done."""
    at = settings.epoch, settings.rank
    checkpoints = Checkpoints(settings.folder, *at)
    keep_dir = inplace.keep_dir()
    memory = None if keep_dir is None else Checkpoints(Path(keep_dir) / f"local-{settings.local_rank}", *at)
    if settings.saves:
        checkpoints.check()
    if settings.rank:
        wait_for_master(settings.peer_timeout_s)
    dist.init_process_group("gloo", timeout=timedelta(seconds=settings.peer_timeout_s))
    trainer = Trainer(settings)
    step, written = trainer.resume(checkpoints, memory), False
    say(f"rank={settings.rank} world={dist.get_world_size()} epoch={settings.epoch} goes on from step {step}")
    while settings.steps == 0 or step < settings.steps:
        began_s = time.monotonic()
        loss, asked = trainer.train_step(step)
        if written and (memory is None or settings.is_shared):
            inplace.saved(step, shared=settings.is_shared)  # all had written it BEFORE they took part in this step
        step += 1
        say(f"step={step} loss={loss:.6f} epoch={settings.epoch} rank={settings.rank}")
        if memory is not None:
            try:
                memory.write(step, trainer.state())
                inplace.saved(step)
            except CheckpointError as error:  # after a restart all go on from an older step, or from a shared one
                say(f"rank={settings.rank}: step {step} is not kept in {keep_dir}: {error.__cause__}")
        written = asked or step % settings.checkpoint_every == 0
        if settings.saves and written:
            with inplace.busy("checkpoint", up_to_s=CHECKPOINT_S_MAX):
                checkpoints.write(step, trainer.state())
        if asked and step != settings.steps:
            dist.barrier()  # AFTER it all have saved: the first that ends is the end of all
            inplace.saved(step, shared=settings.is_shared)
            say(f"saved step={step} epoch={settings.epoch} rank={settings.rank}")
            return False
        time.sleep(max(0.0, began_s + settings.step_s - time.monotonic()))
    dist.destroy_process_group()
    return True


def address_of(name: str, hosts_file: str) -> str:
    """Return a host's address from the simulator's hosts file; without one, or without the name in it, the name."""
    for line in Path(hosts_file).read_text().splitlines() if hosts_file else ():
        address, *names = line.split()
        if name in names:
            return address
    return name


def wait_for_master(limit_s: float) -> None:
    """Return when rank 0 listens; PyTorch asks again after a pause that grows to a second and more."""
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    deadline_s = time.monotonic() + limit_s
    while time.monotonic() < deadline_s:  # AFTER it PyTorch's own message says what is missing
        try:
            socket.create_connection((address, port), timeout=1).close()
        except OSError:
            time.sleep(CONNECT_PAUSE_S)
        else:
            return


def say(text: str) -> None:
    """Print a line at once, whole beside those of other ranks."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> None:
    """Train; end with 0, 1, SAVED or NO_CHECKPOINT. A lost peer raises: PyTorch names the operation."""
    torch.set_num_threads(1)  # the ranks of one machine share its cores
    load_lazy_modules()
    inplace.ready()  # with --standby this process may have been started early: then it waits for its epoch here
    settings = Settings.from_env(os.environ)
    os.environ["MASTER_ADDR"] = address_of(os.environ["MASTER_ADDR"], os.environ.get("INPLACE_HOSTS_FILE", ""))
    try:
        if not train(settings):
            end_now(SAVED)
    except CheckpointError as error:
        say(f"rank={settings.rank}: {error}")
        end_now(NO_CHECKPOINT)
    except MixedRunsError as error:
        say(f"rank={settings.rank}: {error}")
        end_now(1)


def load_lazy_modules() -> None:
    """Load what PyTorch loads with the first optimizer, a second of CPU time: a standby has it BEFORE it waits."""
    torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)


def end_now(code: int) -> None:
    """End with this code: at an ordinary exit gloo's threads may still wait for a peer, and abort the process."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
