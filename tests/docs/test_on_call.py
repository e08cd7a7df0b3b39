"""docs/on-call.md: its five commands lead from a failed group to the line of code."""

from __future__ import annotations

import asyncio
import shlex
from pathlib import Path
from typing import Final

import pytest

from inplace.common.wire import names as wire
from inplace.simulator.cluster.cluster import Cluster
from tests.cli.command import REPOSITORY, run
from tests.cli.injecting import example_of
from tests.cli.lint.cases import worker

PAGE: Final = (REPOSITORY / "docs" / "on-call.md").read_text()
TIMEOUT_S: Final = 120.0  # the group restarts after 2 s on an idle machine
SCRIPT: Final = """
import os
import time


def load(batch):
    if os.environ["JOB_COMPLETION_INDEX"] == "1" and int(os.environ["INPLACE_EPOCH"]) <= FAILURES and batch == 3:
        raise ValueError("batch 3 is empty")
    time.sleep(0.1)


for batch in range(10_000):
    load(batch)
"""


def commands() -> list[list[str]]:
    """Return the words of the page's commands, without `inplace`, for the JobSet of the test."""
    block = PAGE.partition("\n\n    ")[2].partition("\n\n")[0]
    lines = [line.strip().replace("NAMESPACE", "default").replace("JOBSET", "train") for line in block.splitlines()]
    return [shlex.split(line)[1:] for line in lines]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("depth", "failures"),
    [
        ("process", 1),
        pytest.param("process", 3, marks=pytest.mark.slow),
        pytest.param("containers", 2, marks=pytest.mark.slow),
    ],
)
async def test_from_the_alert_to_the_line_of_code(tmp_path: Path, depth: str, failures: int) -> None:
    """Five commands name the JobSet, the Pod that failed first, the line that raised, and the restart.

    In a crash loop, too, which removes the containers of the runs before.
    """
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.replace("FAILURES", str(failures)))
    group = example_of(2)
    settings = {wire.NODES: "9", wire.RESTART: depth, wire.FAILURES: "backoff=0"}
    group[-1]["metadata"]["annotations"] = settings
    worker(group[-1])["command"][2:] = ["python3", str(script)]
    async with Cluster(nodes=1) as cluster:
        await cluster.apply(group)
        await cluster.until(
            lambda: cluster.jobset("train").get("status", {}).get(wire.SYNCED_EPOCH) == failures + 1,
            timeout_s=TIMEOUT_S,
        )
        victim = sorted(pod["metadata"]["name"] for pod in cluster.pods())[1]
        config = ("--kubeconfig", str(cluster.kubeconfig("admin")))
        done = [await asyncio.to_thread(run, *words, *config) for words in commands()]
    assert [one.returncode for one in done] == [0] * 5, [one.stderr for one in done]
    status, explained, first, searched, history = (one.stdout for one in done)
    assert "train" in status
    assert f"first failure: container worker of Pod {victim} on node-0 with exit code 1" in explained
    raised = SCRIPT[: SCRIPT.index("        raise")].count("\n") + 1
    assert f'"{script}", line {raised}, in load' in first
    assert searched.count(f"{victim}  ValueError: batch 3 is empty") == failures
    assert victim in history
