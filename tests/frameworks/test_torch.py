"""examples/torch_train.py trains with PyTorch: with and without torchrun, across restarts, against bad folders."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.systems import PODS
from testbed.frameworks.venv import environment
from testbed.ports import free_ports
from tests.frameworks.elastic import end_with_a_spare, shrink_and_grow
from tests.frameworks.libraries.harness import LOSSES, strike
from tests.frameworks.questions import ask_ranks
from tests.frameworks.standbys import go_on_from_memory, restart_with_standbys
from tests.frameworks.training import REPOSITORY, RUN_S_MAX, on_tmpfs, recover_from_kills, restart_twice
from tests.simulator.cluster.planned_stops import stop_twice

MODULE = "inplace.examples.torch_train"
NO_CHECKPOINT = 73


def train(
    folders: Sequence[Path], steps: int, *prefix: str, epochs: Sequence[int] = (1, 1)
) -> list[tuple[int, list[str]]]:
    """Run one process for each checkpoint folder, to a step; return the exit codes and what the processes printed."""
    (port,) = free_ports(1)
    command = [*prefix, str(environment("torch") / "bin" / "python3"), "-m", MODULE]
    workers = []
    for rank, (folder, epoch) in enumerate(zip(folders, epochs, strict=False)):
        env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY), "INPLACE_EPOCH": str(epoch)}
        env |= {"RANK": str(rank), "WORLD_SIZE": str(len(folders)), "CHECKPOINT_DIR": str(folder), "STEPS": str(steps)}
        env |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        pipe = subprocess.PIPE
        workers.append(subprocess.Popen(command, env=env, stdout=pipe, stderr=subprocess.STDOUT, text=True))
    outputs = [worker.communicate(timeout=RUN_S_MAX)[0] for worker in workers]
    return [(worker.returncode, output.splitlines()) for worker, output in zip(workers, outputs, strict=True)]


def steps_of(said: Sequence[str]) -> list[str]:
    """Return step and loss of each line of a step."""
    return [" ".join(line.split()[:2]) for line in said if line.startswith("step=")]


@pytest.mark.parametrize("manifest", ["torchrun.yaml", "torch.yaml"])
def test_the_loss_falls_across_restarts_in_place(manifest: str) -> None:
    """Two killed workers give two restarts without a new Pod, and each epoch begins with a lower loss."""
    restart_twice("torch", f"examples/{manifest}")


def test_a_half_written_checkpoint_is_skipped_and_steps_repeat_bit_by_bit(tmp_path: Path) -> None:
    """From a newest file that is cut off both ranks go on at the one before, one without a folder too."""
    folders = [tmp_path / "0", tmp_path / "1"]
    first = train(folders, 30)
    assert [code for code, _ in first] == [0, 0], first
    shutil.rmtree(folders[0])
    newest = folders[1] / "step-000000030.pt"
    newest.write_bytes(newest.read_bytes()[: newest.stat().st_size // 2])
    (left := folders[1] / "epoch-000000001-rank-1.new").write_bytes(b"left by a process that was killed")

    second = train(folders, 32, epochs=(2, 2))

    assert [code for code, _ in second] == [0, 0], second
    assert any(line.startswith("skipped step-000000030.pt") for line in second[1][1])
    assert "rank=0 takes the checkpoint of step 20 from rank 1" in second[0][1]
    assert not left.exists()
    for (_, before), (_, after) in zip(first, second, strict=True):
        assert steps_of(before)[20:] == steps_of(after)[:10]
        assert len(steps_of(after)) == 12


def test_ranks_of_two_epochs_do_not_make_one_step(tmp_path: Path) -> None:
    """Each rank names the other's epoch, and ends before any gradient."""
    done = train([tmp_path, tmp_path], 5, epochs=(1, 2))

    assert [code for code, _ in done] == [1, 1], done
    for rank, (_, said) in enumerate(done):
        assert steps_of(said) == []
        told = f"expected every rank at epoch {rank + 1}, step 0, saw rank {1 - rank} at epoch {2 - rank}, step 0"
        assert any(told in line for line in said), said


@pytest.mark.parametrize(
    ("options", "words", "steps"),
    [
        ("size=4k", "No space left on device", 10),
        ("size=20k", "No space left on device", 20),
        ("size=1m,ro", "Read-only file system", 0),
    ],
    ids=["full-at-the-first", "full-at-the-second", "read-only"],
)
def test_a_folder_that_takes_no_checkpoint_is_named(tmp_path: Path, options: str, words: str, steps: int) -> None:
    """A full or read-only folder ends the process with a code of its own, and a line with folder and reason."""
    ((code, said),) = train([tmp_path], 30, *on_tmpfs(tmp_path, options))
    assert code == NO_CHECKPOINT, said
    assert len(steps_of(said)) == steps, said
    assert f"rank=0: expected to write checkpoints into {tmp_path}, saw: {words}" in "\n".join(said)
    assert not any("Traceback" in line for line in said)


def test_a_full_memory_ends_no_training(tmp_path: Path) -> None:
    """Each step that does not fit is said, and the training goes on to its end."""
    (keep := tmp_path / "keep").mkdir()
    ((code, said),) = train([tmp_path / "own"], 5, *on_tmpfs(keep, "size=20k"), f"INPLACE_KEEP_DIR={keep}")
    assert code == 0, said
    kept = [line for line in said if "is not kept in" in line]
    assert kept[-1] == f"rank=0: step 5 is not kept in {keep}: [Errno 28] No space left on device"
    assert 0 < len(kept) < 5, said  # the first ones fit
    assert sum(line.startswith("step=") for line in said) == 5


def test_random_kills_below_torchrun_are_recovered_from() -> None:
    """Of each kill the group recovers; no two epochs meet, and every step has the loss of a run without failures."""
    recover_from_kills("torchrun", "--seed", "7")


@pytest.mark.long
@pytest.mark.asyncio
async def test_a_standby_is_the_next_rank(tmp_path: Path) -> None:
    """It imported the framework beside the rank that is killed, and trains on in its place, in every Pod."""
    assert await restart_with_standbys(tmp_path, "torch") == PODS


@pytest.mark.long
@pytest.mark.asyncio
@pytest.mark.parametrize(("most", "least"), [(4, 2), (8, 6)])
async def test_a_lost_pod_makes_the_group_smaller_until_it_is_back(tmp_path: Path, most: int, least: int) -> None:
    """By itself it trains on with fewer ranks, and every step has the loss of a run that nothing disturbs."""
    await shrink_and_grow(tmp_path, "torch", most, least)


@pytest.mark.long
@pytest.mark.asyncio
async def test_a_spare_takes_the_rank_of_a_deleted_pod(tmp_path: Path) -> None:
    """The group goes on in one restart and ends with its last step."""
    await end_with_a_spare(tmp_path, "torch")


@pytest.mark.asyncio
async def test_a_kill_costs_one_step_with_a_memory_that_outlives_the_rank(tmp_path: Path) -> None:
    """All go on from the newest step that each Pod has in memory, not from the checkpoint before it."""
    await go_on_from_memory(tmp_path, "torch")


@pytest.mark.asyncio
@pytest.mark.parametrize("example", ["torch.yaml", pytest.param("torchrun.yaml", marks=pytest.mark.long)])
async def test_planned_stops_lose_no_step(example: str) -> None:
    """A restart on request and a drain: all ranks save after the step at which any of them was asked."""
    await stop_twice(example, programs=[environment("torch") / "bin"])


@pytest.mark.asyncio
async def test_lost_pods_cost_the_steps_since_the_shared_checkpoint(tmp_path: Path) -> None:
    """One that starts on another node, and all at once; a suspend costs no step."""
    await strike(tmp_path, "torch", LOSSES)


def test_ranks_in_a_collective_say_where_they_are_and_go_on(tmp_path: Path) -> None:
    """Below torchrun, whose own handlers stay: asked ten times, then with one rank stopped, nothing ends or fails."""
    launcher = [str(environment("torch") / "bin" / "torchrun"), "--standalone", "--nproc-per-node=2", "-m", MODULE]
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY), "INPLACE_EPOCH": "1"}
    waiting, stopped = ask_ranks(launcher, env | {"CHECKPOINT_DIR": str(tmp_path)}, ("rank-0", "rank-1"))
    assert (stopped["silent"], stopped["state"]) == (True, "T")
    assert any("torch/distributed" in frame or "torch_train.py" in frame for frame in waiting["frames"])
