"""One rank of a training exits 0 at step 30, and its peers' collective breaks at once, as with JAX."""

from __future__ import annotations

import io
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from inplace.cli.connection import Connection
from inplace.cli.group.read import read_group
from inplace.cli.group.state import group_state
from inplace.cli.status.explain import explanation_lines, read_facts
from inplace.cli.status.explanation import explain
from inplace.cli.status.view import status_picture
from inplace.cli.terminal.console import VisibleConsole
from inplace.common import wire
from inplace.simulator.cluster.cluster import Cluster
from inplace.simulator.cluster.manifests import read_manifests, with_pods
from tests.simulator.cluster.planned_stops import EXAMPLES

EARLY = 2
WORKER = """
import os, socket, sys, time
folder, rank, epoch = sys.argv[1], int(os.environ["JOB_COMPLETION_INDEX"]), os.environ["INPLACE_EPOCH"]
path = f"{folder}/{epoch}"
if rank == 2:
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen()
    peers = [server.accept()[0] for _ in range(3)]
else:
    link = socket.socket(socket.AF_UNIX)
    while link.connect_ex(path):
        time.sleep(0.01)
for step in range(1, 1000000):  # each step ends with a collective: rank 2 has to answer
    if rank == 2:
        if step == 30 and epoch == "1":
            os._exit(0)
        for peer in peers:
            peer.recv(1)
            peer.send(b"x")
    else:
        link.send(b"x")
        if not link.recv(1):
            sys.exit("collective: peer closed the connection")
    print(f"step={step} epoch={epoch}", flush=True)
    time.sleep(0.02)
"""


@pytest.mark.slow
@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("example", "depth"),
    [("train-supervisor.yaml", ""), ("train-guarded.yaml", "containers"), ("train-guarded.yaml", "process")],
)
async def test_a_rank_that_completes_early(example: str, depth: str, tmp_path: Path) -> None:
    """A guard's Pod restarts in place like its peers; a supervisor's Job is recreated, and its rank is named first.

    The peers' failure is told first in all modes. kubelet's first look at a guard's container restarts the whole Pod,
    so no status shows that it ended with 0.
    """
    found = with_pods(read_manifests(EXAMPLES / example), 4)
    spec: dict[str, Any] = found[-1]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    worker = spec["containers"][0]
    words = worker["command"]
    worker["command"] = [*words[: words.index("--") + 1], sys.executable, "-c", WORKER, str(tmp_path)]
    for agent in spec.get("initContainers") or ():
        agent["env"].append({"name": "RESTART_DEPTH", "value": depth})
    async with Cluster(nodes=4) as cluster:
        await cluster.apply(found)
        await cluster.until(lambda: synced(cluster) == 1, timeout_s=60)
        pods = {pod["metadata"]["uid"] for pod in cluster.pods()}
        await cluster.until(lambda: synced(cluster) == 2, timeout_s=60)
        kept = pods == {pod["metadata"]["uid"] for pod in cluster.pods()}
        connection, now_s = Connection(cluster.client("user"), "default"), time.time()
        state = group_state(*await read_group(connection, "train"))
        console = VisibleConsole(file=io.StringIO(), width=240, record=True)
        console.print(status_picture(state, now_s=now_s, columns=240))
        shown = console.export_text()
        explanation = explain(await read_facts(connection, "train"), now_s=now_s)
    explained = "\n".join(text for text, _ in explanation_lines(explanation))
    last = cluster.jobset("train")["status"][wire.LAST_GROUP_RESTART]
    assert state.used == 1
    assert kept == bool(depth)
    if kept:
        return
    rank = last["firstFailure"]["pod"]
    assert (last["trigger"], rank[: rank.rindex("-")]) == ("completed_early", f"train-workers-0-{EARLY}")
    assert "it completed while others went on; then pod train-workers-0-" in explained
    assert f"Pod {rank} on node-" in shown
    assert "with exit code 0 (Completed)" in shown
    for text in (shown, explained):
        assert "its Job was recreated with all its Pods; what their emptyDir volumes held is gone" in text


def synced(cluster: Cluster) -> int:
    """Return S."""
    return int((cluster.jobset("train").get("status") or {}).get("syncedEpoch") or 0)
