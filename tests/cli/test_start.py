"""The start's budget of the commands that people type while a group stands still: what they import."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from pathlib import Path

import pytest

from inplace.simulator.cluster.cluster import Cluster
from inplace.simulator.cluster.manifests import read_manifests, with_pods
from tests.cli.command import REPOSITORY, command, printed_by

EXAMPLE = REPOSITORY / "examples" / "train.yaml"
HEAVY = {"aiohttp", "cel", "h11", "kubernetes_asyncio", "prometheus_client", "pydantic", "re2", "structlog", "tenacity"}
# The work of other commands, and of the controller.
OTHERS = {"inplace.simulator", "inplace.cli.demo", "inplace.cli.inject", "inplace.controller.plan"}
TRAINS_S_MAX = 60.0
# (command, more modules that it does not need, how many it loads at most)
BUDGETS = (
    (("status", "train"), {"anyio", "yaml"}, 390),
    (("status", "train", "-o", "json"), {"anyio", "rich", "yaml"}, 350),
    (("explain", "train"), {"anyio", "yaml"}, 430),
    (("logs", "train"), {"rich", "yaml"}, 430),
    (("version",), {"asyncio", "msgspec", "rich", "ssl", "yaml"}, 190),
)


@pytest.mark.asyncio
async def test_commands_import_only_what_they_need(tmp_path: Path) -> None:
    """Each command loads a bounded number of modules, and none of those that cost tens of milliseconds."""
    async with Cluster(runtime="model", serve_http=True) as cluster:
        timeline = cluster.timeline("train")
        await cluster.apply(with_pods(read_manifests(EXAMPLE), 2))
        await cluster.until(lambda: timeline.current.complete, timeout_s=120.0)
        assert "Nothing keeps it from training" in await asyncio.to_thread(_explained, str(cluster.kubeconfig("admin")))
        kubeconfig = str(cluster.kubeconfig("admin"))
        for words, unneeded, most in BUDGETS:
            modules = await asyncio.to_thread(_imported_by, words, kubeconfig)
            assert modules & (HEAVY | OTHERS | unneeded) == set(), words
            assert len(modules) <= most, (words, len(modules))


def _imported_by(words: tuple[str, ...], kubeconfig: str) -> set[str]:
    done = subprocess.run(
        command(*words),
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPROFILEIMPORTTIME": "1", "KUBECONFIG": kubeconfig},
        capture_output=True,
        text=True,
        check=True,
        timeout=120.0,
    )
    return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}


def _explained(kubeconfig: str) -> str:
    """Return what is said of a group that trains, for which `explain` reads most."""
    deadline_s = time.monotonic() + TRAINS_S_MAX
    while True:
        said = printed_by(kubeconfig, "explain", "train")
        if "Nothing keeps it" in said or time.monotonic() > deadline_s:
            return said
