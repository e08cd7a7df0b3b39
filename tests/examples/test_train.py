from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from inplace.examples.train import newest_common

REPOSITORY = Path(__file__).parents[2]
TIMEOUT_S = 60.0


class Group:
    """Starts workers on loopback, each with a checkpoint folder that outlives it."""

    def __init__(self, folder: Path, world: int) -> None:
        self.folder = folder
        self.world = world
        self.workers: list[subprocess.Popen[str]] = []
        with socket.create_server(("127.0.0.1", 0)) as server:
            self.port = server.getsockname()[1]

    def start(self, rank: int, *, epoch: int = 1, pass_fds: tuple[int, ...] = (), **env: str) -> subprocess.Popen[str]:
        """Start one worker."""
        settings = {
            "EPOCH": str(epoch),
            "JOB_COMPLETION_INDEX": str(rank),
            "PODS_PER_JOB": str(self.world),
            "COORDINATOR_PORT": str(self.port),
            "CHECKPOINT_DIR": str(self.folder / str(rank)),
            "CHECKPOINT_EVERY": "10",
            "PEER_TIMEOUT_S": str(TIMEOUT_S),
        }
        worker = subprocess.Popen(
            [sys.executable, "-m", "inplace.examples.train"],
            env=os.environ | settings | env,
            cwd=REPOSITORY,
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=pass_fds,
        )
        self.workers.append(worker)
        return worker

    def start_all(self, *, epoch: int = 1, **env: str) -> list[subprocess.Popen[str]]:
        """Start every rank."""
        return [self.start(rank, epoch=epoch, pass_fds=(), **env) for rank in range(self.world)]


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    """Return a group of two workers whose processes end with the test."""
    group = Group(tmp_path, 2)
    yield group
    for worker in group.workers:
        worker.kill()
        worker.communicate()


def losses(text: str) -> dict[int, float]:
    """Return the loss of each step in a worker's output."""
    return {int(step): float(loss) for step, loss in re.findall(r"^step=(\d+) loss=(\S+) epoch=", text, re.MULTILINE)}


def finish(worker: subprocess.Popen[str]) -> tuple[int, str]:
    """Return exit code and output."""
    text, _ = worker.communicate(timeout=TIMEOUT_S)
    return worker.returncode, text


def read_until(worker: subprocess.Popen[str], pattern: str) -> str:
    """Return the first line of a worker that matches."""
    assert worker.stdout is not None
    for line in worker.stdout:
        if re.search(pattern, line):
            return line
    raise AssertionError(f"expected a line with {pattern!r}, saw the end of the output")


def test_training_converges_and_ends_with_0(group: Group) -> None:
    """Every worker prints the same falling loss, one line a step, and exits 0."""
    results = [finish(worker) for worker in group.start_all(STEPS="60")]
    assert [code for code, _ in results] == [0, 0]
    first, second = (losses(text) for _, text in results)
    assert first == second
    assert sorted(first) == list(range(1, 61))
    assert first[60] < first[1] / 50


def test_the_death_of_a_worker_fails_the_others(group: Group) -> None:
    """The death of any rank, also of the one that others depend on, fails all workers."""
    survivor, victim = group.start_all(STEP_S="0.01")
    read_until(victim, "^step=3 ")
    victim.send_signal(signal.SIGKILL)
    code, text = finish(survivor)
    assert code == 1
    assert "lost a peer: rank 1" in text


def test_a_restarted_group_goes_on_from_its_checkpoint(group: Group) -> None:
    """After a crash the losses go on exactly as in a run without one, also for a worker whose disk is new."""
    whole = finish(group.start_all(STEPS="30", CHECKPOINT_EVERY="1000")[0])[1]
    leader, victim = group.start_all(STEP_S="0.01")
    read_until(leader, "^step=15 ")
    leader.send_signal(signal.SIGKILL)
    finish(leader)
    finish(victim)
    for path in (group.folder / "1").iterdir():
        path.unlink()  # the Pod was replaced
    [(code, text), (_, replaced)] = [finish(worker) for worker in group.start_all(epoch=2, STEPS="30")]
    assert code == 0
    assert "goes on from step 10" in text
    assert "fetched the checkpoint of step 10 from a peer" in replaced
    assert losses(text) == {step: loss for step, loss in losses(whole).items() if step > 10}


def test_generations_do_not_mix(group: Group) -> None:
    """A worker of another epoch is refused and exits 1; the group goes on without it."""
    leader = group.start(0, epoch=2, STEPS="5")
    code, text = finish(group.start(1, epoch=1, STEPS="5"))
    assert code == 1
    assert "does not belong here" in text
    assert finish(group.start(1, epoch=2, STEPS="5"))[0] == 0
    code, text = finish(leader)
    assert code == 0
    assert "refused rank=1 of epoch='1'" in text


def test_a_standby_learns_its_epoch_at_its_release(group: Group) -> None:
    """A worker that was started early trains in the epoch it is released with, and exits when it never is."""
    (ours, theirs), (unused, its) = (socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(2))
    with ours, theirs, unused, its:
        waits = group.start(0, pass_fds=(theirs.fileno(),), INPLACE_STANDBY=waiting(theirs), STEPS="2", EPOCH="1")
        other = group.start(1, epoch=7, STEPS="2")
        ours.send(b"INPLACE_EPOCH=7\0INPLACE_STANDBY=")
        assert "epoch=7 goes on from step 0" in finish(waits)[1]
        assert finish(other)[0] == 0
        unused.close()
        assert finish(group.start(0, pass_fds=(its.fileno(),), INPLACE_STANDBY=waiting(its)))[0] == 0


def waiting(end: socket.socket) -> str:
    """Return what the environment of a standby says of its socket."""
    return f"wait:{end.fileno()}:{os.fstat(end.fileno()).st_ino}"


def test_the_newest_common_checkpoint_ignores_workers_without_any() -> None:
    """A replaced worker does not drag the group back to step 0."""
    assert newest_common([[10, 20], [20, 30], []]) == 20
    assert newest_common([[], []]) == 0
