"""A user's way on a real node: a plain manifest, inject, and a training job that goes on after a restart."""

from __future__ import annotations

import re

import pytest

from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from testbed.node.archives import WORKER_IMAGE
from testbed.node.cluster import Cluster
from testbed.node.group import Group, running, train_through_a_kill
from testbed.node.manifests import documents_of
from tests.cli.command import run
from tests.cli.injecting import annotated

PODS = 3
SETTINGS = {"PODS_PER_JOB": str(PODS), "WORLD_SIZE": str(PODS), "STEPS": "80", "STEP_S": "0.1"}
OPTIONS = {"containers": (), "process": (), "supervisor": ("--mode", "supervisor")}
DEPTHS = {"containers": {"restart": wire.DEPTH_CONTAINERS}}


def adapt(jobset: KubeObject) -> None:
    """Adapt the manifest to the test machine: its size, the worker's image and the example's path in it."""
    job = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]
    job["parallelism"] = job["completions"] = PODS
    (worker,) = job["template"]["spec"]["containers"]
    worker["image"] = WORKER_IMAGE
    worker["workingDir"] = "/opt/inplace"
    worker["env"] = [each for each in worker["env"] if each["name"] not in SETTINGS]
    worker["env"] += [{"name": name, "value": value} for name, value in SETTINGS.items()]


@pytest.fixture
def made(mode: str) -> str:
    """Give the plain manifest after inject."""
    return run("inject", "-f", "-", *OPTIONS[mode], "--quiet", stdin=annotated(**DEPTHS.get(mode, {}))).stdout


@pytest.mark.asyncio(loop_scope="session")
async def test_what_inject_makes_trains(cluster: Cluster, made: str) -> None:
    """The workers meet by DNS, and after a SIGKILL all go on from a checkpoint to the last step, in their Pods."""
    group = Group(cluster, await cluster.plane.create_namespace(), pods=PODS, restarts_max=10)
    documents = documents_of(made, group.namespace)
    adapt(documents[-1])
    async with running(group, documents):
        text = await train_through_a_kill(group, "step=10 ")

        went_on = re.findall(r"epoch=(\d) goes on from step (\d+)", text)
        assert [epoch for epoch, _ in went_on].count("2") == PODS
        assert all(int(step) >= 10 for epoch, step in went_on if epoch == "2")
