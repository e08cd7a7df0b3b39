"""Hugging Face Trainer, Lightning and Accelerate train in Pods with the lines of docs/with-trainers.md."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from benchmarks.systems import STANDBY, Group, in_pods, keep_in_memory
from inplace.common.kube.resources import JOBSETS
from inplace.common.wire import names as wire
from inplace.common.wire.last_progress import parse_last_progress
from inplace.simulator.cluster.cluster import Cluster
from testbed.frameworks.ranks import trainers
from testbed.frameworks.venv import environment
from testbed.frameworks.worker_lines import WorkerLines
from tests.frameworks.training import REPOSITORY

RANK = "testbed.frameworks.trainer_ranks"
TRAINERS = ("transformers", "lightning", "accelerate")
PODS = 2
STEPS = 120
MEMORY_EVERY, SHARED_EVERY = 5, 20
STEPS_BETWEEN = 12
ROUNDING = 2e-6  # sums of floats have no fixed order
RUN_S_MAX = 120.0  # two processes import a trainer on two busy cores
POLL_S = 0.05
GRACE_S = 60
ANNOTATIONS = {wire.RESTART: "save-within=30", wire.STALL: "after=60,start=120", wire.FAILURES: "backoff=0"}


@dataclass
class Training:
    """A group that trains, and the lines of its ranks."""

    group: Group
    cluster: Cluster
    lines: WorkerLines

    async def reach(self, done: Callable[[], bool]) -> None:
        """Wait until something holds."""
        try:
            async with asyncio.timeout(RUN_S_MAX):
                while not done():
                    await asyncio.sleep(POLL_S)
                    self.lines.read()
        except TimeoutError:
            raise AssertionError(f"saw {dict(self.lines.resumed)}\n{self.lines.tails()}") from None

    async def trains(self, epoch: int, steps: int = STEPS_BETWEEN) -> None:
        """Wait until an epoch has made so many steps."""
        lines = self.lines
        await self.reach(
            lambda: epoch in lines.resumed and lines.reached[epoch] >= max(lines.resumed[epoch], default=0) + steps
        )

    async def ends(self) -> None:
        """Wait until the JobSet has ended, as it should."""
        await self.reach(lambda: bool(self.status.get("terminalState")))
        assert self.status["terminalState"] == "Completed"

    def begun(self, epoch: int) -> int:
        """Return the one step from which an epoch's ranks went on."""
        (step,) = self.lines.resumed[epoch]
        return step

    def signal(self, number: int) -> None:
        """Send a signal to one rank."""
        os.kill(trainers(self.group.marker, RANK)[1][0], number)

    @property
    def status(self) -> dict[str, Any]:
        """Return the JobSet's status."""
        found: dict[str, Any] = self.cluster.jobset("torch")["status"]
        return found


@asynccontextmanager
async def training(
    folder: Path,
    trainer: str,
    steps: int = STEPS,
    annotations: Mapping[str, str] = ANNOTATIONS,
    options: Sequence[str] = (),
) -> AsyncIterator[Training]:
    """Start the Pods of examples/torch.yaml, with a rank of this trainer in each, and options of the agent."""

    def change(pod: dict[str, Any]) -> None:
        (worker,) = pod["containers"]
        worker["command"][worker["command"].index("-m") + 1 :] = [RANK]
        values = {"TRAINER": trainer, "MEMORY_EVERY": str(MEMORY_EVERY), "CHECKPOINT_EVERY": str(SHARED_EVERY)}
        worker["env"] = [entry for entry in worker["env"] if entry["name"] not in values]
        worker["env"] += [{"name": name, "value": value} for name, value in values.items()]
        keep_in_memory(pod)
        pod["terminationGracePeriodSeconds"] = GRACE_S

    started = partial(in_pods, folder, framework="torch", example="torch", pods=PODS, options=options)
    async with started(steps=steps, annotations=annotations, change=change) as group:
        assert group.cluster is not None
        yield Training(group, group.cluster, WorkerLines(folder / "pods", "worker", ROUNDING))


@cache
def undisturbed() -> dict[int, str]:
    """Return the loss of each step in one process without trainer, agent and failure."""
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY), "TRAINER": "plain", "STEPS": str(STEPS)}
    command = [str(environment("torch") / "bin" / "python3"), "-m", RANK]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=RUN_S_MAX, check=True)
    return WorkerLines.of_text(done.stdout).losses


def check_losses(lines: WorkerLines) -> None:
    """Check that each step of each run had the loss of the undisturbed run, the last one too."""
    assert lines.differing == []
    expected = undisturbed()
    assert max(lines.losses) == STEPS
    assert [step for step, loss in lines.losses.items() if not lines.are_same(expected[step], loss)] == []


@pytest.mark.asyncio
@pytest.mark.parametrize("trainer", TRAINERS)
async def test_a_kill_costs_few_steps_and_a_planned_stop_none(tmp_path: Path, trainer: str) -> None:
    """A kill costs the steps since the last copy in memory, a suspension none, and the training ends as without."""
    async with training(tmp_path, trainer) as own:
        await own.trains(1)
        own.signal(signal.SIGKILL)
        await own.trains(2)
        # The step in which a rank was killed was printed, and not made.
        assert own.lines.reached[1] - MEMORY_EVERY - 1 <= own.begun(2) <= own.lines.reached[1]
        (restart,) = own.status["restartHistory"]
        assert (restart["resumeKind"], restart["resumeStep"]) == ("local", own.begun(2))
        told = [parse_last_progress(pod["metadata"]["annotations"][wire.PHASES]) for pod in own.cluster.pods()]
        assert {progress.step for progress in told if progress} == {own.lines.reached[1] - 1}  # counted from 0

        await own.cluster.client().patch(JOBSETS, "default", "torch", {"spec": {"suspend": True}})
        await own.reach(lambda: not own.cluster.pods())
        await own.cluster.client().patch(JOBSETS, "default", "torch", {"spec": {"suspend": False}})
        await own.reach(lambda: bool(own.lines.resumed.get(3)))
        assert own.begun(3) == own.lines.reached[2]
        await own.ends()
    await asyncio.to_thread(check_losses, own.lines)


@pytest.mark.long
@pytest.mark.asyncio
@pytest.mark.parametrize("trainer", TRAINERS)
async def test_a_lost_pod_costs_the_steps_since_the_shared_checkpoint(tmp_path: Path, trainer: str) -> None:
    """The new Pod has nothing in memory; the old one ends at SIGTERM, and not with its grace period."""
    async with training(tmp_path, trainer, steps=3000, annotations={wire.FAILURES: "backoff=0"}) as own:
        await own.trains(1, SHARED_EVERY + 2)
        began_s = time.monotonic()
        await own.group.delete_pod(Random(1))
        await own.reach(lambda: not any(pod["metadata"].get("deletionTimestamp") for pod in own.cluster.pods()))
        assert time.monotonic() - began_s < GRACE_S / 2
        await own.trains(2, 1)
        assert own.begun(2) == own.lines.reached[1] // SHARED_EVERY * SHARED_EVERY
        assert own.lines.differing == []


@pytest.mark.long
@pytest.mark.asyncio
@pytest.mark.parametrize("trainer", TRAINERS)
async def test_a_checkpoint_that_is_gone_costs_two_runs(tmp_path: Path, trainer: str) -> None:
    """A rank that told of a step and lacks it ends; after two such runs all take an older step, and it never loops."""
    async with training(tmp_path, trainer) as own:
        await own.trains(1, SHARED_EVERY + MEMORY_EVERY + 1)
        own.signal(signal.SIGSTOP)
        shutil.rmtree(next(tmp_path.glob("pods/*/volumes/keep/checkpoints")))
        own.signal(signal.SIGKILL)
        await own.trains(4, 1)
        assert own.begun(4) == SHARED_EVERY
        said = "".join(log.read_text() for log in tmp_path.glob("pods/*/logs/worker/*.log"))
        assert said.count("CheckpointMissing: expected the checkpoint of step 25 in") >= 2
        await own.ends()
    await asyncio.to_thread(check_losses, own.lines)


@pytest.mark.long
@pytest.mark.asyncio
@pytest.mark.parametrize("trainer", TRAINERS)
async def test_a_rank_that_hangs_is_found(tmp_path: Path, trainer: str) -> None:
    """The script never calls `inplace.progress`; the callback does."""
    async with training(tmp_path, trainer, annotations={wire.STALL: "after=5,start=100"}) as own:
        await own.trains(1)
        own.signal(signal.SIGSTOP)
        await own.trains(2, 1)
        assert own.status["lastGroupRestart"]["trigger"] == "stalled"
        await own.ends()
    await asyncio.to_thread(check_losses, own.lines)


@pytest.mark.long
@pytest.mark.asyncio
@pytest.mark.parametrize("trainer", TRAINERS)
async def test_a_standby_has_imported_the_trainer(tmp_path: Path, trainer: str) -> None:
    """It waits in `inplace.ready` behind all imports, learns the step there, and goes on in the killed rank's place."""
    async with training(tmp_path, trainer, steps=3000, options=STANDBY) as own:
        await own.group.reach(PODS, 0, standbys=PODS)
        own.signal(signal.SIGKILL)
        await own.trains(2, 1)
        assert own.lines.reached[1] - MEMORY_EVERY - 1 <= own.begun(2) <= own.lines.reached[1]
        assert own.lines.released == PODS
        assert own.lines.differing == []
