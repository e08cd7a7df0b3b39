"""examples/jax.yaml on a real node, in the image that its users build: JAX trains, and goes on after a restart."""

from __future__ import annotations

import re

import pytest
import pytest_asyncio
import yaml

from inplace.common.kube.resources import KubeObject
from testbed.frameworks.manifests import EXAMPLES
from testbed.frameworks.manifests import documents_of as example_in_mode
from testbed.frameworks.worker_lines import Findings, WorkerLines
from testbed.node import archives
from testbed.node.cluster import Cluster
from testbed.node.group import Group, running
from testbed.node.manifests import documents_of
from testbed.node.training import train_through_a_kill

PODS = 2
STEPS = 60
STEPS_WITH_STANDBY = 400  # of 0.1 s: a standby imports in a quarter of the time
# CI has what users copy: of the modes in which kubelet restarts nothing, supervisor.
MODES = [
    pytest.param("guarded", (), id="guarded"),
    pytest.param("process", (), id="process", marks=pytest.mark.long),
    pytest.param("supervisor", (), id="supervisor"),
    pytest.param("supervisor", ("--standby",), id="standby", marks=pytest.mark.long),
]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def cluster_with_jax(cluster: Cluster) -> Cluster:
    """Give the cluster, whose first node has the image with JAX."""
    await cluster.nodes[0].load([archives.build_jax()])
    return cluster


def adapt(jobset: KubeObject, steps: int) -> None:
    """Make the group small enough for the test machine, and let it train for some seconds."""
    job = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]
    job["parallelism"] = job["completions"] = PODS
    (worker,) = job["template"]["spec"]["containers"]
    settings = {"PODS_PER_JOB": str(PODS), "WORLD_SIZE": str(PODS), "STEPS": str(steps)}
    worker["env"] = [each for each in worker["env"] if each["name"] not in settings]
    worker["env"] += [{"name": name, "value": value} for name, value in settings.items()]


@pytest.mark.parametrize(("mode", "options"), MODES)
@pytest.mark.asyncio(loop_scope="session")
async def test_jax_goes_on_after_a_restart(cluster_with_jax: Cluster, mode: str, options: tuple[str, ...]) -> None:
    """After a SIGKILL all processes go on from a checkpoint, in their Pods; none mixes, and the loss falls.

    With `--standby` the next processes were there before the kill, and became the workers.
    """
    group = Group(cluster_with_jax, await cluster_with_jax.plane.create_namespace(), pods=PODS, restarts_max=10)
    example = yaml.safe_dump_all(example_in_mode(EXAMPLES / "jax.yaml", mode, options))
    documents = documents_of(example, group.namespace)
    last = STEPS_WITH_STANDBY if options else STEPS
    adapt(documents[-1], last)
    async with running(group, documents):
        if options:
            text = await train_through_a_kill(group, "standby_ready", process=1)  # the agent, the worker, its standby
        else:
            text = await train_through_a_kill(group, "step=11 ")

        printed = re.findall(r"^\S+ std(?:out|err) [FP] (.*)$", text, re.MULTILINE)
        lines = WorkerLines.of_text("\n".join(printed))
        assert Findings.of(lines, lines.losses).are_clean, lines.differing + lines.mixed
        assert {epoch: min(steps) >= 10 for epoch, steps in lines.resumed.items()} == {1: False, 2: True}
        assert lines.reached[2] == last
        assert float(lines.losses[last]) < float(lines.losses[11]) < float(lines.losses[1])
        assert lines.released == (PODS if options else 0)
