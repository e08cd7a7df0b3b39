"""The start's budget of the commands that people type while a group stands still: what they import."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from inplace.simulator.cluster.cluster import Cluster
from inplace.simulator.cluster.timings import local_processes
from tests.cli.command import imported_by
from tests.cli.injecting import example_of
from tests.cli.scenes import all_work, jobset_of

HEAVY = {"aiohttp", "cel", "h11", "kubernetes_asyncio", "prometheus_client", "pydantic", "re2", "structlog", "tenacity"}
# The work of other commands, and of the controller.
OTHERS = {"inplace.simulator", "inplace.cli.demo", "inplace.cli.inject", "inplace.controller.plan"}
# (command, more modules that it does not need, how many it loads at most)
BUDGETS = (
    (("status", "train"), {"anyio", "yaml"}, 405),
    (("status", "train", "-o", "json"), {"anyio", "rich", "yaml"}, 350),
    (("explain", "train"), {"anyio", "yaml"}, 430),
    (("logs", "train"), {"rich", "yaml"}, 430),
    (("--help",), {"asyncio", "importlib.metadata", "msgspec", "rich", "ssl", "yaml"}, 190),
    (("--version",), {"asyncio", "msgspec", "rich", "ssl", "yaml"}, 190),
)


@pytest.mark.asyncio
async def test_commands_import_only_what_they_need(tmp_path: Path) -> None:
    """Each command loads a bounded number of modules, and none of those that cost tens of milliseconds."""
    group = example_of(2)
    (agent,) = jobset_of(group)["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["initContainers"]
    agent["readinessProbe"]["periodSeconds"] = 1
    async with Cluster(runtime="model", serve_http=True, timings=local_processes()) as cluster:
        await cluster.trained(group, timeout_s=120.0)  # `explain` reads most of a group that runs
        await cluster.until(lambda: all_work(cluster, 2), timeout_s=120.0)
        kubeconfig = str(cluster.kubeconfig("admin"))
        for words, unneeded, most in BUDGETS:
            modules, said = await asyncio.to_thread(imported_by, *words, KUBECONFIG=kubeconfig)
            assert "inplace.cli.main" in modules
            assert modules & (HEAVY | OTHERS | unneeded) == set(), words
            assert len(modules) <= most, (words, len(modules))
            assert "explain" not in words or "No rank has reported a step" in said
