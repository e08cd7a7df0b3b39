"""
Train a linear model on synthetic data, data-parallel over TCP, with the standard library and `inplace.progress`.

It does what any synchronous trainer does, in small: workers meet at rank 0, agree on the newest checkpoint,
and then reduce one gradient per step. When a worker dies, the others cannot go on: like a collective that
lost a member they hang until a timeout, or exit at once (ON_PEER_LOSS). Restarting all of them is somebody
else's job.

Every connection opens with the worker's epoch, and rank 0 refuses another one than its own: a run in which
workers of two generations mix does not get past its first message.

Environment: EPOCH (a supervisor's INPLACE_EPOCH comes first), JOB_INDEX, JOB_COMPLETION_INDEX, PODS_PER_JOB,
WORLD_SIZE, COORDINATOR (rank 0's DNS name), COORDINATOR_PORT, POD_IP, CHECKPOINT_DIR, CHECKPOINT_EVERY, STEPS (0 is
until told), STEP_S, SEED, ON_PEER_LOSS (exit or hang), PEER_TIMEOUT_S, INPLACE_HOSTS_FILE (instead of DNS, in the
simulator), INPLACE_PROGRESS_DIR (see `inplace.progress`), INPLACE_SAVE_FILE (see `inplace.save_requested`).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import struct
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import inplace

FEATURES = 16
SAMPLES = 64  # per worker and step
LEARNING_RATE = 0.05
CHECKPOINT_S_MAX = 10  # of a save that takes milliseconds: a rank that hangs in it is found then
CHECKPOINTS_KEPT = 2  # one may be newer than what the slowest worker has
FRAME_BYTES_MAX = 1 << 20
SAVED = 75  # the exit code after a save that was asked for, sysexits.h EX_TEMPFAIL: any code but 0 restarts the group
CONNECT_PAUSE_S = 0.1  # N workers ask rank 0 at most 10 N times a second, until it listens


class PeerLostError(Exception):
    """A connection to another worker ended or fell silent."""


class RefusedError(Exception):
    """The group that this worker asked to join is not its own."""


@dataclass(frozen=True)
class Settings:
    """What one worker needs to know."""

    epoch: str
    rank: int
    world: int
    coordinator: str
    port: int
    pod_ip: str
    folder: Path
    checkpoint_every: int
    steps: int
    step_s: float
    seed: int
    hangs: bool
    peer_timeout_s: float
    hosts_file: str

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Settings:
        """Read the settings; the rank counts over all Jobs of the replicatedJob."""
        per_job = int(env.get("PODS_PER_JOB") or 1)
        return cls(
            epoch=env.get("INPLACE_EPOCH") or env.get("EPOCH", ""),
            rank=int(env.get("JOB_INDEX") or 0) * per_job + int(env.get("JOB_COMPLETION_INDEX") or 0),
            world=int(env.get("WORLD_SIZE") or per_job),
            coordinator=env.get("COORDINATOR") or "localhost",
            port=int(env.get("COORDINATOR_PORT") or 29500),
            pod_ip=env.get("POD_IP") or "127.0.0.1",
            folder=Path(env.get("CHECKPOINT_DIR") or "checkpoints"),
            checkpoint_every=int(env.get("CHECKPOINT_EVERY") or 10),
            steps=int(env.get("STEPS") or 0),
            step_s=float(env.get("STEP_S") or 0),
            seed=int(env.get("SEED") or 7),
            hangs=env.get("ON_PEER_LOSS", "exit") == "hang",
            peer_timeout_s=float(env.get("PEER_TIMEOUT_S") or 30),
            hosts_file=env.get("INPLACE_HOSTS_FILE", ""),
        )


class Connection:
    """Frames of bytes over TCP: a length, then the body."""

    def __init__(self, sock: socket.socket, name: str) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = sock
        self.name = name

    def send(self, body: bytes) -> None:
        """Send one frame."""
        try:
            self._socket.sendall(struct.pack("!I", len(body)) + body)
        except OSError as error:
            raise PeerLostError(f"{self.name}: {error}") from error

    def receive(self) -> bytes:
        """Receive one frame."""
        (length,) = struct.unpack("!I", self._exactly(4))
        if length > FRAME_BYTES_MAX:
            raise PeerLostError(f"{self.name}: expected at most {FRAME_BYTES_MAX} bytes, saw a frame of {length}")
        return self._exactly(length)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _exactly(self, count: int) -> bytes:
        body = b""
        while len(body) < count:
            try:
                piece = self._socket.recv(count - len(body))
            except OSError as error:
                raise PeerLostError(f"{self.name}: {error}") from error
            if not piece:
                raise PeerLostError(f"{self.name} closed the connection")
            body += piece
        return body

    def send_json(self, value: Any) -> None:
        """Send one value."""
        self.send(json.dumps(value).encode())

    def receive_json(self) -> Any:
        """Receive one value."""
        return json.loads(self.receive())


class Checkpoints:
    """The model's states on this worker's disk, each whole or absent."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def steps(self) -> list[int]:
        """Return the steps there are, oldest first."""
        return sorted(int(path.stem.removeprefix("step-")) for path in self._folder.glob("step-*.json"))

    def read(self, step: int) -> list[float]:
        """Return the weights after `step` steps."""
        weights: list[float] = json.loads(self._path(step).read_text())
        return weights

    def write(self, step: int, weights: Sequence[float]) -> None:
        """Write a checkpoint so that a crash leaves the old ones or the new one, never half of it."""
        fresh = self._path(step).with_suffix(".new")
        with fresh.open("w") as file:
            json.dump(list(weights), file)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._path(step))
        for old in self.steps()[:-CHECKPOINTS_KEPT]:
            self._path(old).unlink()

    def _path(self, step: int) -> Path:
        return self._folder / f"step-{step:09}.json"


def resolve(name: str, hosts_file: str) -> str:
    """Return the address of a host: from the simulator's hosts file if there is one, else from DNS."""
    if not hosts_file:
        return name
    for line in Path(hosts_file).read_text().splitlines():
        address, *names = line.split()
        if name in names:
            return address
    raise OSError(f"{name} is not in {hosts_file} yet")


def listen(settings: Settings) -> socket.socket:
    """Open rank 0's port."""
    return socket.create_server((settings.pod_ip, settings.port), backlog=settings.world)


def gather(settings: Settings, server: socket.socket) -> list[tuple[Connection, list[int]]]:
    """Accept every other worker of this epoch and return them with their checkpoints, in rank order."""
    deadline_s = time.monotonic() + settings.peer_timeout_s
    members: dict[int, tuple[Connection, list[int]]] = {}
    while len(members) < settings.world - 1:
        server.settimeout(max(0.001, deadline_s - time.monotonic()))
        try:
            sock, address = server.accept()
        except TimeoutError:
            missing = sorted(set(range(1, settings.world)) - set(members))
            raise PeerLostError(f"expected {settings.world} workers, ranks {missing} did not come") from None
        sock.settimeout(settings.peer_timeout_s)
        peer = Connection(sock, f"worker at {address[0]}")
        try:
            hello = peer.receive_json()
        except PeerLostError:
            continue
        if (hello["epoch"], hello["world"]) != (settings.epoch, settings.world):
            say(f"refused rank={hello['rank']} of epoch={hello['epoch']!r}: this is epoch={settings.epoch!r}")
            peer.send_json({"refused": f"expected epoch {settings.epoch!r} and world {settings.world}"})
            peer.close()
            continue
        peer.name = f"rank {hello['rank']}"
        members[hello["rank"]] = peer, hello["checkpoints"]
    return [members[rank] for rank in sorted(members)]


def join(settings: Settings, checkpoints: Checkpoints) -> Connection:
    """Connect to rank 0 as soon as it listens, and introduce this worker."""
    deadline_s = time.monotonic() + settings.peer_timeout_s
    while True:
        try:
            address = (resolve(settings.coordinator, settings.hosts_file), settings.port)
            sock = socket.create_connection(address, timeout=settings.peer_timeout_s)
            break
        except OSError as error:
            if time.monotonic() > deadline_s:
                raise PeerLostError(f"rank 0 at {settings.coordinator}:{settings.port}: {error}") from error
            time.sleep(CONNECT_PAUSE_S)
    leader = Connection(sock, "rank 0")
    hello = {"epoch": settings.epoch, "rank": settings.rank, "world": settings.world}
    leader.send_json(hello | {"checkpoints": checkpoints.steps()})
    return leader


def newest_common(holdings: Sequence[Sequence[int]]) -> int:
    """Return the newest step that every worker with any checkpoint has; 0 when there is none."""
    held = [set(steps) for steps in holdings if steps]
    return max(set.intersection(*held), default=0) if held else 0


def lead_resume(checkpoints: Checkpoints, members: Sequence[tuple[Connection, list[int]]]) -> tuple[int, list[float]]:
    """Choose the step to go on from, as rank 0, and give its weights to whoever lacks them."""
    mine = checkpoints.steps()
    step = newest_common([mine, *(steps for _, steps in members)])
    weights = [0.0] * FEATURES
    if step and step in mine:
        weights = checkpoints.read(step)
    elif step:
        holder = next(peer for peer, steps in members if step in steps)
        holder.send_json({"step": step, "wanted": True})
        weights = holder.receive_json()
    for peer, steps in members:
        peer.send_json({"step": step, "weights": None if step in steps or not step else weights})
    return step, weights


def follow_resume(checkpoints: Checkpoints, leader: Connection) -> tuple[int, list[float]]:
    """Learn from rank 0 where to go on."""
    while True:
        word = leader.receive_json()
        if "refused" in word:
            raise RefusedError(word["refused"])
        step = word["step"]
        if "wanted" in word:
            leader.send_json(checkpoints.read(step))
            continue
        if word["weights"] is not None:
            say(f"fetched the checkpoint of step {step} from a peer")
            return step, word["weights"]
        return step, checkpoints.read(step) if step else [0.0] * FEATURES


def batch(settings: Settings, step: int) -> Iterator[tuple[list[float], float]]:
    """Yield this worker's samples of one step: the same in every run with this seed."""
    truth = Random(settings.seed)
    weights = [truth.uniform(-1, 1) for _ in range(FEATURES)]
    rng = Random(f"{settings.seed}/{settings.rank}/{step}")
    for _ in range(SAMPLES):
        x = [rng.gauss(0, 1) for _ in range(FEATURES)]
        yield x, sum(map(float.__mul__, weights, x)) + rng.gauss(0, 0.01)


def gradient(weights: Sequence[float], samples: Iterator[tuple[list[float], float]]) -> list[float]:
    """Return the gradient of the mean squared error, with the error itself as its last element."""
    total = [0.0] * (FEATURES + 1)
    for x, y in samples:
        error = sum(map(float.__mul__, weights, x)) - y
        for index in range(FEATURES):
            total[index] += 2 * error * x[index] / SAMPLES
        total[FEATURES] += error * error / SAMPLES
    return total


def reduce(mine: list[float], members: Sequence[Connection], leader: Connection | None, step: int) -> list[float]:
    """Return the mean over all workers: rank 0 adds in rank order, so that every run rounds alike.

    Each worker says its step BEFORE it waits for the others, so nobody who waits is behind the rank that hangs.
    """
    layout = f"!{len(mine)}d"
    inplace.progress(step)
    if leader is not None:
        leader.send(struct.pack(layout, *mine))
        return list(struct.unpack(layout, leader.receive()))
    for member in members:
        mine = [a + b for a, b in zip(mine, struct.unpack(layout, member.receive()), strict=True)]
    mean = [value / (len(members) + 1) for value in mine]
    for member in members:
        member.send(struct.pack(layout, *mean))
    inplace.progress(step)
    return mean


def train(settings: Settings) -> bool:
    """Train to the last step, or until somebody asks a worker to save; return whether the last step is done.

    Whether this worker was asked travels with its gradient, so that all save after the same step.
    """
    checkpoints = Checkpoints(settings.folder)
    leader: Connection | None = None
    members: list[Connection] = []
    if settings.rank == 0:
        with listen(settings) as server:
            found = gather(settings, server)
        members = [peer for peer, _ in found]
        step, weights = lead_resume(checkpoints, found)
    else:
        leader = join(settings, checkpoints)
        step, weights = follow_resume(checkpoints, leader)
    say(f"rank={settings.rank} world={settings.world} epoch={settings.epoch} goes on from step {step}")
    while settings.steps == 0 or step < settings.steps:
        began_s = time.monotonic()
        mine = [*gradient(weights, batch(settings, step)), float(inplace.save_requested())]
        *slopes, loss, asked = reduce(mine, members, leader, step)
        weights = [weight - LEARNING_RATE * slope for weight, slope in zip(weights, slopes, strict=True)]
        step += 1
        say(f"step={step} loss={loss:.6f} epoch={settings.epoch} rank={settings.rank}")
        if asked or step % settings.checkpoint_every == 0:
            with inplace.busy("checkpoint", up_to_s=CHECKPOINT_S_MAX):
                checkpoints.write(step, weights)
        if asked and step != settings.steps:
            reduce([0.0], members, leader, step - 1)  # AFTER it all have saved: the first that ends is the end of all
            say(f"saved step={step} epoch={settings.epoch} rank={settings.rank}")
            return False
        time.sleep(max(0.0, began_s + settings.step_s - time.monotonic()))
    return True


def say(text: str) -> None:
    """Print a line at once."""
    print(text, flush=True)


def main() -> int:
    """Train; return the exit code."""
    # The first process of a container ignores what it does not handle: each restart would wait for kubelet's SIGKILL.
    signal.signal(signal.SIGTERM, lambda number, _: os._exit(128 + number))
    inplace.ready()  # a process that was started early (`inplace-agent run --standby`) waits here
    settings = Settings.from_env(os.environ)
    try:
        return 0 if train(settings) else SAVED
    except RefusedError as error:
        say(f"rank={settings.rank} does not belong here: {error}")
        return 1
    except PeerLostError as error:
        say(f"rank={settings.rank} lost a peer: {error}")
        if settings.hangs:
            time.sleep(settings.peer_timeout_s)
        return 1


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
