"""examples/jax_train.py trains with JAX: across restarts, from broken checkpoints, against folders that refuse."""

from __future__ import annotations

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from benchmarks.systems import PODS
from testbed.frameworks.venv import environment
from testbed.ports import free_ports
from tests.frameworks.elastic import end_with_a_spare, shrink_and_grow
from tests.frameworks.libraries.harness import ALL_EVENTS, LOSSES, strike
from tests.frameworks.questions import ask_ranks
from tests.frameworks.standbys import go_on_from_memory, restart_with_standbys
from tests.frameworks.training import REPOSITORY, RUN_S_MAX, on_tmpfs, recover_from_kills, restart_twice, run_script
from tests.simulator.cluster.planned_stops import stop_twice

MODULE = "inplace.examples.jax_train"
NO_CHECKPOINT = 73


def train(folder: Path, steps: int, *prefix: str, programs: str = "") -> tuple[int, list[str]]:
    """Run one process of one to a step; return its exit code and what it printed."""
    env = {"INPLACE_EPOCH": "1", "CHECKPOINT_DIR": str(folder), "STEPS": str(steps), "JAX_PLATFORMS": "cpu"}
    env["PROGRAM_DIR"] = programs
    (port,) = free_ports(1)
    done = run_script("jax", MODULE, env | {"COORDINATOR_PORT": str(port)}, *prefix)
    return done.returncode, (done.stdout + done.stderr).splitlines()


def test_the_loss_falls_across_restarts_in_place() -> None:
    """Two killed workers give two restarts without a new Pod, and each epoch begins with a lower loss."""
    restart_twice("jax", "examples/jax.yaml")


def test_a_half_written_checkpoint_is_skipped_for_the_one_before(tmp_path: Path) -> None:
    """From a newest file that is cut off it goes on at the one before, and repeats the same losses bit by bit."""
    code, first = train(tmp_path, 30)
    assert code == 0, first
    newest = tmp_path / "step-000000030.npz"
    newest.write_bytes(newest.read_bytes()[: newest.stat().st_size // 2])
    (left := tmp_path / "epoch-000000000-rank-3.new").write_bytes(b"left by a process that was killed")

    code, second = train(tmp_path, 32)

    assert code == 0, second
    assert any(line.startswith("skipped step-000000030.npz") for line in second)
    assert "rank=0 world=1 epoch=1 goes on from step 20" in second
    assert not left.exists()
    steps = {line.split()[0]: line for line in first if line.startswith("step=")}
    again = [line for line in second if line.startswith("step=")]
    assert len(again) == 12
    assert again[:10] == [steps[f"step={step}"] for step in range(21, 31)]


def test_an_empty_checkpoint_file_does_not_stop_a_start(tmp_path: Path) -> None:
    """With nothing but files that hold no checkpoint it begins at step 0."""
    (tmp_path / "step-000000010.npz").write_bytes(b"")
    (tmp_path / "step-000000020.npz").write_bytes(b"no checkpoint")
    code, said = train(tmp_path, 1)
    assert code == 0, said
    assert "rank=0 world=1 epoch=1 goes on from step 0" in said


@pytest.mark.parametrize(
    ("options", "words"),
    [("size=4k", "No space left on device"), ("size=1m,ro", "Read-only file system")],
    ids=["full", "read-only"],
)
def test_a_folder_that_takes_no_checkpoint_is_named(tmp_path: Path, options: str, words: str) -> None:
    """A full or read-only folder ends the process with a code of its own, and a line with folder and reason."""
    code, said = train(tmp_path, 20, *on_tmpfs(tmp_path, options))
    assert code == NO_CHECKPOINT, said
    assert f"rank=0: expected to write checkpoints into {tmp_path}, saw: {words}" in "\n".join(said)
    assert not any("Traceback" in line for line in said)


def test_a_full_memory_ends_no_training(tmp_path: Path) -> None:
    """Each step that does not fit is said, and the training goes on to its end."""
    (keep := tmp_path / "keep").mkdir()
    code, said = train(tmp_path / "own", 5, *on_tmpfs(keep, "size=20k"), f"INPLACE_KEEP_DIR={keep}")
    assert code == 0, said
    kept = [line for line in said if "is not kept in" in line]
    assert kept[-1] == f"rank=0: step 5 is not kept in {keep}: [Errno 28] No space left on device"
    assert 0 < len(kept) < 5, said  # the first ones fit
    assert sum(line.startswith("step=") for line in said) == 5


def test_a_kept_step_is_loaded_and_a_broken_one_compiled_again(tmp_path: Path) -> None:
    """The second start loads the step that the first one left; the third finds half of it, says so, and mends it."""
    programs = tmp_path / "programs"
    code, first = train(tmp_path / "1", 3, programs=str(programs))
    assert code == 0, first
    (file,) = programs.iterdir()
    before = file.stat()
    code, second = train(tmp_path / "2", 3, programs=str(programs))
    assert (code, second) == (0, first)
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)

    file.write_bytes(file.read_bytes()[: before.st_size // 2])
    code, third = train(tmp_path / "3", 3, programs=str(programs))

    assert code == 0, third
    assert any(line.startswith(f"compiles again, because {file} cannot be loaded") for line in third)
    assert [line for line in third if line.startswith("step=")] == [line for line in first if line.startswith("step=")]
    assert file.stat().st_size == before.st_size


def test_a_step_that_cannot_be_kept_is_no_error(tmp_path: Path) -> None:
    """Where PROGRAM_DIR takes no file the process says so and trains."""
    code, said = train(tmp_path, 1, programs="/proc/nowhere")
    assert code == 0, said
    assert any("/proc/nowhere/" in line and "cannot be written" in line for line in said)


def test_processes_of_two_epochs_do_not_train_together(tmp_path: Path) -> None:
    """Two processes that meet although their epochs differ both end with an error that shows both epochs."""
    (port,) = free_ports(1)

    def run(rank: int) -> tuple[int, str]:
        env = {"INPLACE_EPOCH": str(rank + 1), "JOB_COMPLETION_INDEX": str(rank), "PODS_PER_JOB": "2", "STEPS": "5"}
        env |= {"CHECKPOINT_DIR": str(tmp_path / str(rank)), "COORDINATOR_PORT": str(port), "JAX_PLATFORMS": "cpu"}
        done = run_script("jax", MODULE, env)
        return done.returncode, done.stdout + done.stderr

    with ThreadPoolExecutor() as pool:
        results = list(pool.map(run, (0, 1)))
    for code, said in results:
        assert code != 0
        assert "step=1" not in said
    assert any("MIXED: expected every process at (epoch, step) =" in said for _, said in results)
    assert any("{0: (1, 0), 1: (2, 0)} by rank" in said for _, said in results)


def test_random_kills_are_recovered_from_below_a_guard() -> None:
    """Three strikes in mode containers: all recovered, none mixed, each loss as in a run without failures."""
    recover_from_kills("jax", "--mode", "containers", "--seed", "2")


@pytest.mark.asyncio
async def test_a_standby_is_the_next_rank(tmp_path: Path) -> None:
    """It imported the framework beside the rank that is killed, and trains on in its place, in every Pod."""
    assert await restart_with_standbys(tmp_path, "jax") == PODS


@pytest.mark.asyncio
@pytest.mark.parametrize(("most", "least"), [(4, 2), pytest.param(8, 6, marks=pytest.mark.long)])
async def test_a_lost_pod_makes_the_group_smaller_until_it_is_back(tmp_path: Path, most: int, least: int) -> None:
    """By itself it trains on with fewer ranks, and every step has the loss of a run that nothing disturbs."""
    await shrink_and_grow(tmp_path, "jax", most, least)


@pytest.mark.asyncio
async def test_a_spare_takes_the_rank_of_a_deleted_pod(tmp_path: Path) -> None:
    """The group goes on in one restart and ends with its last step."""
    await end_with_a_spare(tmp_path, "jax")


@pytest.mark.asyncio
async def test_a_kill_costs_one_step_with_a_memory_that_outlives_the_rank(tmp_path: Path) -> None:
    """All go on from the newest step that each Pod has in memory, not from the checkpoint before it."""
    await go_on_from_memory(tmp_path, "jax")


@pytest.mark.asyncio
async def test_planned_stops_lose_no_step() -> None:
    """A restart on request and a drain: all processes save after the step at which any of them was asked."""
    await stop_twice("jax.yaml", programs=[environment("jax") / "bin"])


LAUNCHER = f"""
import os, subprocess, sys
command = [sys.executable, "-u", "-m", "{MODULE}"]
envs = [os.environ | {{"RANK": rank, "JOB_COMPLETION_INDEX": rank}} for rank in ("0", "1")]
ranks = [subprocess.Popen(command, env=env) for env in envs]
for rank in ranks: rank.wait()
"""


def test_ranks_in_a_collective_say_where_they_are_and_go_on(tmp_path: Path) -> None:
    """Asked ten times, then with one process stopped, nothing ends or fails."""
    (port,) = free_ports(1)
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY), "INPLACE_EPOCH": "1", "PODS_PER_JOB": "2"}
    env |= {"CHECKPOINT_DIR": str(tmp_path), "COORDINATOR_PORT": str(port), "JAX_PLATFORMS": "cpu"}
    command = [str(environment("jax") / "bin" / "python3"), "-c", LAUNCHER]
    waiting, stopped = ask_ranks(command, env, ("rank-0", "rank-1"))
    assert (stopped["silent"], stopped["state"]) == (True, "T")
    assert any("jax" in frame for frame in waiting["frames"])


ENDS = (
    "import sys\n"
    "from inplace.examples import jax_train\n"
    "def train(settings):\n"
    "    sys.stdout.close()\n"
    "    sys.exit(HOW)\n"
    "jax_train.train = train\n"
    "jax_train.main()\n"
)


@pytest.mark.parametrize(("how", "code", "said"), [("'no data'", 1, "no data"), ("7", 7, ""), ("None", 0, "")])
def test_sys_exit_ends_at_once_beside_a_closed_stdout(how: str, code: int, said: str) -> None:
    """It ends with Python's code and text, without JAX's handlers, which may wait for peers that are gone."""
    python = environment("jax") / "bin" / "python3"
    done = subprocess.run(
        [python, "-c", ENDS.replace("HOW", how)],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY), "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        check=False,
    )
    assert (done.returncode, done.stderr.strip()) == (code, said)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("name", "events"),
    [
        pytest.param("jax", LOSSES, id="lost-pods"),
        pytest.param("orbax", ("kill",), id="orbax-kill"),
        pytest.param("orbax", ALL_EVENTS, marks=pytest.mark.long, id="orbax"),
        pytest.param("orbax-emergency", ("kill",), id="emergency-kill"),
        pytest.param("orbax-emergency", ALL_EVENTS, marks=pytest.mark.long, id="emergency"),
    ],
)
async def test_a_group_gets_its_steps_back(tmp_path: Path, name: str, events: tuple[str, ...]) -> None:
    """After a kill and lost Pods all go on from the newest step that is whole; a planned stop costs none."""
    await strike(tmp_path, name, events)
