"""Checkpoint libraries for PyTorch below inplace: no event costs more steps than the library has not saved."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from inplace.common.wire.mode import Mode
from testbed.frameworks.venv import environment
from tests.agent.process import ROOT, process
from tests.agent.supervisor_rig import until
from tests.agent.test_guard import agent_at, guarded
from tests.agent.test_process_depth import pod
from tests.agent.worker.test_cleaning import POD, STARTER
from tests.frameworks.libraries.harness import ALL_EVENTS, strike

NOTE_S_MAX = 90.0  # two libraries are imported, on busy cores
KEPT_MB_MAX = 8  # what the two libraries keep of one step


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("name", "events"),
    [
        *(pytest.param(name, ("kill",), id=f"{name}-kill") for name in ("dcp", "dlrover", "torchft")),
        pytest.param("nvrx-inprocess", ("repair", "kill"), id="inprocess-repair-kill"),
        *(
            pytest.param(name, ALL_EVENTS, marks=pytest.mark.long, id=name)
            for name in ("dcp", "dlrover", "flashpoint", "nvrx", "torchft")
        ),
    ],
)
async def test_a_library_gives_the_group_its_steps_back(tmp_path: Path, name: str, events: tuple[str, ...]) -> None:
    """After a kill and a lost Pod all go on from the newest step that is whole; a planned stop costs none."""
    await strike(tmp_path, name, events)


@pytest.mark.long
@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("name", "mode"), [("dlrover", Mode.PROCESS), *((name, Mode.CONTAINERS) for name in ("dcp", "flashpoint", "nvrx"))]
)
async def test_a_library_does_so_below_a_guard_beside_the_agent(tmp_path: Path, name: str, mode: Mode) -> None:
    """And where kubelet starts all containers again; DLRover's saver ends there, so its memory copy is not found."""
    await strike(tmp_path, name, ("kill", "kill"), mode)


@pytest.fixture
def shm() -> Iterator[Path]:
    """Give a folder in memory, which is mounted as a Pod's /dev/shm."""
    with tempfile.TemporaryDirectory(prefix="inplace-shm-", dir="/dev/shm") as name:
        yield Path(name)


LENGTHS = [pytest.param(2, 16, id="2-runs"), pytest.param(20, 1000, marks=pytest.mark.long, id="20-runs")]


def words(shm: Path, shared: Path, leak_mb: int) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the command that turns into a program with this /dev/shm, and the variables of the worker."""
    env = {
        **POD,
        "CHECKPOINT_DIR": str(shared / "storage"),
        "LEAK_MB": str(leak_mb),
        "LOCAL_RANK": "0",
        "PYTHONPATH": str(ROOT),
        "ROLE_NAME": "dlrover-trainer",
        "TORCHELASTIC_RUN_ID": f"inplace-{uuid4().hex[:12]}",
    }
    return (*STARTER, str(shm)), env


def python(module: str) -> list[str]:
    """Return the command of a module of this folder."""
    return [
        str(environment("libraries") / "bin" / "python3"),
        "-W",
        "ignore",
        "-m",
        f"tests.frameworks.libraries.{module}",
    ]


async def noted(folder: Path, epoch: int) -> None:
    """Wait until the worker of an epoch has noted what it found: it does so before it dies."""
    note = folder / "notes" / f"epoch-{epoch}"
    await until(lambda: note.exists() and note.read_text().endswith("\n"), note.name, timeout_s=NOTE_S_MAX)


def judge(folder: Path, runs: int, *, saver_stays: bool) -> None:
    """Check what each run found, by the notes of all of them."""
    notes = [(folder / "notes" / f"epoch-{epoch}").read_text() for epoch in range(1, runs + 1)]
    rows = [[int(word) for word in note.split()] for note in notes]
    print(f"{runs - 1} restarts, bytes in /dev/shm at each start: {sorted({size for *_, size in rows})}")
    for run, (dlrover, flashpoint, inode, size) in enumerate(rows):
        assert flashpoint == run, "expected the step of the run before"
        assert dlrover == (run if saver_stays else 0)
        assert inode == (rows[1][2] if run else 0), "expected DLRover's file to be the same one"
        assert size <= KEPT_MB_MAX * 10**6, "expected what was leaked to be gone"


@pytest.mark.asyncio
@pytest.mark.parametrize(("runs", "leak_mb"), LENGTHS)
async def test_what_libraries_keep_survives_in_depth_process(
    tmp_path: Path, shm: Path, runs: int, leak_mb: int
) -> None:
    """Both load each run's step in the next one; what the worker leaks beside them does not add up."""
    starter, env = words(shm, tmp_path, leak_mb)
    variables = [f"{name}={value}" for name, value in env.items()]
    saver = process(env | {"PATH": os.environ["PATH"]}, *starter, *python("dlrover_saver"))
    async with saver, pod(tmp_path, python("keeps"), starter=("env", *variables, *starter)) as group:
        for epoch in range(1, runs + 2):
            assert (await group.annotations())["jobset.sigs.k8s.io/epoch"] == str(epoch)
            group.views.show(epoch, epoch - 1)
            await noted(tmp_path, epoch)
    judge(tmp_path, runs + 1, saver_stays=True)


@pytest.mark.asyncio
@pytest.mark.parametrize(("runs", "leak_mb"), LENGTHS)
async def test_what_libraries_keep_survives_in_depth_containers(
    tmp_path: Path, shm: Path, runs: int, leak_mb: int
) -> None:
    """There DLRover's saver ends with each run: its file stays, and it does not find its way in it."""
    starter, env = words(shm, tmp_path, leak_mb)
    for epoch in range(1, runs + 2):
        saver = process(env | {"PATH": os.environ["PATH"]}, *starter, *python("dlrover_saver"))
        async with (
            saver,
            agent_at(tmp_path / "link") as agent,
            guarded(tmp_path, python("keeps"), starter=starter, **env) as group,
        ):
            agent.lift(epoch)
            await noted(tmp_path, epoch)
            assert (await group.finished())[0] == 1
    judge(tmp_path, runs + 1, saver_stays=False)
