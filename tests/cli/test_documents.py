"""What commands print for programs is what their types and schemas say: every field, and no other."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest

from inplace.cli.documents import DOCUMENTS
from inplace.simulator.cluster.cluster import Cluster
from inplace.simulator.cluster.timings import local_processes
from tests.cli.command import REPOSITORY, printed_by, run_here
from tests.cli.injecting import EXAMPLES, example_of


def check(name: str, text: str) -> Any:
    """Return a printed document, which has each field of its type, of the right type, and no further one."""
    found = json.loads(text)
    assert msgspec.convert(found, DOCUMENTS[name], strict=True) == found, name
    return found


@pytest.mark.asyncio
async def test_documents_about_a_group() -> None:
    """A group that has restarted once, its timeline, its history, logs, nodes and explanation have their types."""
    async with Cluster(runtime="model", serve_http=True, timings=local_processes()) as cluster:
        timeline = await cluster.trained(example_of(2), timeout_s=120.0)
        cluster.kill_worker("default", str(cluster.pods()[0]["metadata"]["name"]), supervised=True)
        await cluster.restarted(timeline, 1, timeout_s=120.0)
        kubeconfig = str(cluster.kubeconfig("admin"))

        async def printed(*words: str) -> str:
            return await asyncio.to_thread(printed_by, *words, KUBECONFIG=kubeconfig)

        status = check("status", await printed("status", "train", "--json"))
        assert (status["name"], status["lastRestart"]["epoch"]) == ("train", 2)
        assert [row["name"] for row in check("status-list", await printed("status", "--json"))] == ["train"]
        assert check("explain", await printed("explain", "train", "--json"))["headline"]
        history = check("history", await printed("history", "train", "--json"))
        assert [one["epoch"] for one in history["restarts"]] == [2]
        assert check("report", await printed("report", "--json"))["restarts"] == 1
        assert check("timeline", await printed("timeline", "train", "--json"))["rows"]
        lines = (await printed("logs", "train", "--all", "--json")).splitlines()
        assert [check("logs", line)["pod"] for line in lines]


def test_documents_of_no_cluster() -> None:
    """What is wrong with a manifest has its type."""
    assert check("lint", run_here("lint", "-f", str(EXAMPLES / "train.yaml"), "--json").stdout)["jobsets"] == [
        "JobSet default/train"
    ]
    bare = REPOSITORY / "tests" / "cases" / "manifests"
    manifest = next(file for file in sorted(bare.glob("*.yaml")) if "kind: JobSet" in file.read_text())
    check("lint", run_here("lint", "-f", str(manifest), "--json").stdout)
