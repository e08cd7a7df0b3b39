"""examples/jax.yaml on a real node, in the image that its users build: JAX trains, and goes on after a restart."""

from __future__ import annotations

import asyncio
import re
import signal

import pytest
import pytest_asyncio
import yaml

from inplace.common.kube.resources import JOBSETS, KubeObject
from inplace.common.wire import names as wire
from testbed.frameworks.manifests import EXAMPLES
from testbed.frameworks.manifests import documents_of as example_in_mode
from testbed.frameworks.worker_lines import Findings, WorkerLines
from testbed.node import archives
from testbed.node.cluster import Cluster
from testbed.node.group import SETTLED_S_MAX, Group, running
from testbed.node.manifests import documents_of
from testbed.node.patience import until
from testbed.node.training import train_through_a_kill
from tests.cli.command import run

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


STALL_AFTER_S = 2  # JAX itself ends a rank whose peer is silent for some 5 s, with SIGABRT
FOREVER = 100_000  # steps


@pytest.mark.long
@pytest.mark.parametrize("mode", ["process", "supervisor"])
@pytest.mark.asyncio(loop_scope="session")
async def test_who_died_and_who_hangs_is_named(cluster_with_jax: Cluster, mode: str) -> None:
    """`explain` and `logs` name the rank that was killed, `stacks` the one that hangs, and `history` has both."""
    group = Group(cluster_with_jax, await cluster_with_jax.plane.create_namespace(), pods=PODS, restarts_max=10)
    documents = documents_of(yaml.safe_dump_all(example_in_mode(EXAMPLES / "jax.yaml", mode, ())), group.namespace)
    adapt(documents[-1], FOREVER)
    name = documents[-1]["metadata"]["name"]

    async def ask(verb: str, *options: str) -> str:
        where = ("--kubeconfig", str(cluster_with_jax.plane.kubeconfig), "-n", group.namespace)
        done = await asyncio.to_thread(run, verb, name, *where, *options)
        assert done.returncode == 0, done.stderr
        print(f"$ inplace {verb} {name} {' '.join(options)}\n{done.stdout}")
        return done.stdout

    async def until_trains(epoch: int) -> None:
        def holds() -> bool:
            return any(number == epoch for number, _ in steps_of(group))

        await until(holds, f"a step of epoch {epoch}", timeout_s=SETTLED_S_MAX, also=group.state)

    async with running(group, documents):
        await until_trains(1)
        victim = group.pods()[1]["metadata"]["name"]
        await group.kill(1, "worker")
        await until_trains(2)
        assert f"first failure: container worker of Pod {victim} on node-0 with exit code 137" in await ask("explain")
        last_words = await ask("logs")
        assert f" rank 1 {victim}  " in last_words
        assert "epoch=2" not in last_words

        await group.kill(1, "worker", number=signal.SIGSTOP)
        await asyncio.sleep(2)  # its peer waits for it
        stacks = (await ask("stacks")).splitlines()
        assert "rank 1 answers nothing (stopped)" in stacks[0]
        assert any(line.startswith("rank 0 ") for line in stacks[1:]), "a rank in a collective of JAX answers"
        limit = {"metadata": {"annotations": {wire.STALL_AFTER: str(STALL_AFTER_S)}}}
        await cluster_with_jax.client.patch(JOBSETS, group.namespace, name, limit)
        await until_trains(3)
        assert f"pod {victim} was silent first" in await ask("explain")
        killed, hung = [line.strip() for line in (await ask("history")).splitlines() if "Pod " in line][:2]
        assert killed.startswith(f"a worker ended: Pod {victim} on node-0 with exit code 137")
        assert hung.startswith(f"a worker hung: Pod {victim} on node-0 (Stalled)")
        assert group.uids() == {pod["metadata"]["uid"] for pod in group.live()}


def steps_of(group: Group) -> list[tuple[int, int]]:
    """Return the epoch and step of each line about a step that the workers printed."""
    found = re.finditer(r" step=(\d+) .*?epoch=(\d+)", group.printed("worker"))
    return [(int(each[2]), int(each[1])) for each in found]
