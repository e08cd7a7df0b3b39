"""docs/first-cluster.md to the letter on real kubelets: its commands, its manifest, and how long each step takes."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import pytest

from inplace.common.kube.resources import PODS
from inplace.common.wire import names as wire
from testbed.node.archives import BUSYBOX_IMAGE
from testbed.node.cluster import Cluster
from testbed.node.group import Group
from tests.cluster.clients.pages import blocks, changed, run_command, saved

pytestmark = pytest.mark.asyncio(loop_scope="session")

PAGE = "first-cluster.md"
OURS = ("kubectl ", ".venv/bin/inplace ")
IMAGE = r"( +)image: busybox:1\.37"
LISTED = "kubectl get pods "
KILL = " -- pkill -9 sleep"
UNINSTALL = "kubectl delete -k deploy/"
ONLY_THE_CONTROLLER = f"{UNINSTALL}base"  # other tests need the CRD


def commands() -> list[str]:
    """Return the page's commands from the installation on; other programs build images and bring them to nodes."""
    return [line for block in blocks(PAGE) for line in block.splitlines() if line.startswith(OURS)]


def names_of(listed: str) -> list[str]:
    """Return the names of the Pods that kubectl listed."""
    return [line.split()[0] for line in listed.splitlines()[1:]]


async def kill_a_worker(cluster: Cluster) -> str:
    """Kill the worker of one Pod from its node: the API server of the testbed has no way into a container."""
    pods = (await cluster.client.list(PODS, "default", query={"labelSelector": f"{wire.JOBSET_NAME}=first"}))["items"]
    os.kill(Group(cluster, "default", pods=4, restarts_max=10).processes(pods[0], "worker")[-1], signal.SIGKILL)
    return ""


async def test_the_page_holds(cluster: Cluster, tmp_path: Path) -> None:
    """Each command succeeds; after the kill the Pods are the same, and what is asked says what happened."""
    manifest = tmp_path / "first.yaml"
    text, times = re.subn(
        IMAGE, rf"\1image: {BUSYBOX_IMAGE}\n\1imagePullPolicy: IfNotPresent", saved(PAGE)["first.yaml"]
    )
    assert times == 1
    manifest.write_text(text)
    replacements = {"-f first.yaml": f"-f {manifest}", UNINSTALL: ONLY_THE_CONTROLLER}
    said: list[tuple[str, str, float]] = []
    await cluster.controller.stop()
    try:
        for command in commands():
            if "train.yaml" in command:
                continue  # the reader's own
            wanted = [(old, new) for old, new in replacements.items() if old in command]
            began_s = time.monotonic()
            if KILL in command:
                out = await kill_a_worker(cluster)
            else:
                out = await run_command(cluster.plane.kubeconfig, changed(command, wanted))
            said.append((command, out, time.monotonic() - began_s))
    finally:
        cluster.controller.start()
    for command, _, seconds in said:
        print(f"{seconds:6.1f} s  {command}")
    before, after = (names_of(out) for command, out, _ in said if command.startswith(LISTED))
    assert len(before) == 4
    assert after == before
    (status,) = (out for command, out, _ in said if " status first" in command)
    (why,) = (out for command, out, _ in said if " explain first" in command)
    assert "1 of 10" in status
    assert "exit code 137" in why
