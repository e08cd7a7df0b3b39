"""The examples of JAX and PyTorch on a real node: they go on after a restart, and a rank that fails is named.

JAX is in the image that its users build. PyTorch is mounted into it (testbed/node/archives.py).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable

import pytest
import pytest_asyncio
import yaml

from images.build_once import MissingComponent
from inplace.common.kube.resources import JOBSETS, KubeObject
from inplace.common.wire import names as wire
from testbed.frameworks.kills import ROUNDING_OF
from testbed.frameworks.manifests import ADDED, EXAMPLES
from testbed.frameworks.manifests import documents_of as example_in_mode
from testbed.frameworks.worker_lines import Findings, WorkerLines
from testbed.node import archives
from testbed.node.cluster import Cluster
from testbed.node.group import SETTLED_S_MAX, Group, running, train_through_a_kill
from testbed.node.manifests import documents_of, run_with_torch
from testbed.waiting import until
from tests.cli.command import run

PODS = {"jax": 2, "torch": 4}
STEPS = 60
STEPS_WITH_STANDBY = 400  # of 0.1 s: a standby imports in a quarter of the time
FOREVER = 100_000
# CI has what users copy: of the modes in which kubelet restarts nothing, supervisor.
MODES = [
    pytest.param("jax", "containers", (), id="jax containers"),
    pytest.param("jax", "process", (), id="jax process", marks=pytest.mark.long),
    pytest.param("jax", "supervisor", (), id="jax supervisor"),
    pytest.param("jax", "supervisor", ("--standby",), id="jax standby", marks=pytest.mark.long),
    pytest.param("torch", "supervisor", (), id="torch supervisor", marks=pytest.mark.long),
]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def cluster_with_image(cluster: Cluster) -> Cluster:
    """Give the cluster, whose first node has the image of the examples."""
    await cluster.nodes[0].load([archives.build_jax()])
    return cluster


async def example(
    cluster: Cluster, framework: str, mode: str, options: tuple[str, ...], steps: int
) -> tuple[Group, list[KubeObject]]:
    """Return a group and its documents: small enough for the test machine, and so long that it trains for some seconds.

    Where PyTorch cannot be had the test is skipped; CI says the same of its other tests.
    """
    pods = PODS[framework]
    group = Group(cluster, await cluster.plane.create_namespace(), pods=pods, restarts_max=10)
    made = example_in_mode(EXAMPLES / f"{framework}.yaml", mode, options)
    if framework == "torch" and mode != ADDED:  # its own manifest leaves the account to another example
        made = [*example_in_mode(EXAMPLES / "jax.yaml", mode)[:-1], *made[-1:]]
    documents = documents_of(yaml.safe_dump_all(made), group.namespace)
    job = documents[-1]["spec"]["replicatedJobs"][0]["template"]["spec"]
    job["parallelism"] = job["completions"] = pods
    pod = job["template"]["spec"]
    (worker,) = pod["containers"]
    settings = {"PODS_PER_JOB": str(pods), "WORLD_SIZE": str(pods), "STEPS": str(steps)}
    worker["env"] = [each for each in worker["env"] if each["name"] not in settings]
    worker["env"] += [{"name": name, "value": value} for name, value in settings.items()]
    worker["resources"]["requests"]["cpu"] = "100m"  # four share two cores
    if framework == "torch":
        try:
            run_with_torch(pod)
        except MissingComponent as error:
            pytest.skip(str(error))
    return group, documents


@pytest.mark.parametrize(("framework", "mode", "options"), MODES)
@pytest.mark.asyncio(loop_scope="session")
async def test_training_goes_on_after_a_restart(
    cluster_with_image: Cluster, framework: str, mode: str, options: tuple[str, ...]
) -> None:
    """After a SIGKILL all processes go on from a checkpoint, in their Pods; none mixes, and the loss falls.

    With `--standby` the next processes were there before the kill, and became the workers.
    """
    last = STEPS_WITH_STANDBY if options else STEPS
    group, documents = await example(cluster_with_image, framework, mode, options, last)
    async with running(group, documents):
        if options:
            text = await train_through_a_kill(group, "standby_ready", process=1)  # the agent, the worker, its standby
        else:
            text = await train_through_a_kill(group, "step=11 ")

        printed = re.findall(r"^\S+ std(?:out|err) [FP] (.*)$", text, re.MULTILINE)
        lines = WorkerLines.of_text("\n".join(printed), ROUNDING_OF[framework])
        assert Findings.of(lines, lines.losses).are_clean, lines.differing + lines.mixed
        assert {epoch: min(steps) >= 10 for epoch, steps in lines.resumed.items()} == {1: False, 2: True}
        assert lines.reached[2] == last
        assert float(lines.losses[last]) < float(lines.losses[11]) < float(lines.losses[1])
        assert lines.released == (group.slots if options else 0)


STALL_AFTER_S = 2  # JAX itself ends a rank whose peer is silent for some 5 s, with SIGABRT
ERROR = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
RAISES_AT, HANGS_AT = 12, 20  # the first checkpoint is that of step 10
FAILS = f"""
import os, runpy, signal, inplace
tell, epoch, is_bad = inplace.progress, os.environ["INPLACE_EPOCH"], os.environ["JOB_COMPLETION_INDEX"] == "1"
def progress(step, **numbers):
    if is_bad and epoch == "1" and step == {RAISES_AT}:
        raise RuntimeError("{ERROR.removeprefix("RuntimeError: ")}")
    if is_bad and epoch == "2" and step == {HANGS_AT}:
        os.kill(os.getpid(), signal.SIGSTOP)
    tell(step, **numbers)
inplace.progress = progress
runpy.run_module("inplace.examples.FRAMEWORK_train", run_name="__main__")
"""
"""Run the example; rank 1 raises in its own work in the first epoch, and stops there in the second.

A rank that stops while it waits for the others is as far as they are: then steps cannot tell who it is.
"""


@pytest.mark.long
@pytest.mark.parametrize(("framework", "mode"), [("jax", "process"), ("jax", "supervisor"), ("torch", ADDED)])
@pytest.mark.asyncio(loop_scope="session")
async def test_who_raises_and_who_hangs_is_named(cluster_with_image: Cluster, framework: str, mode: str) -> None:
    """Of the rank that raises, `logs` has the line, and `explain` and `history` the cause; `stacks` has who hangs."""
    group, documents = await example(cluster_with_image, framework, mode, (), FOREVER)
    (worker,) = documents[-1]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"]
    assert worker["command"][-2:] == ["-m", f"inplace.examples.{framework}_train"]
    worker["command"][-2:] = ["-c", FAILS.replace("FRAMEWORK", framework)]
    name = documents[-1]["metadata"]["name"]
    ask = asking(group, name)

    async with running(group, documents):
        await until_trains(group, 2)
        victim = group.pods()[1]["metadata"]["name"]
        failure = f"container worker of Pod {victim} on node-0 with exit code 1"
        assert f"first failure: {failure}: {ERROR}" in await ask("explain")
        said = await ask("logs")
        first, *last_words = said.partition("\nwhat the others said")[0].splitlines()
        assert first.startswith(f"first failure: {failure}: {ERROR}, epoch 1, ")
        assert all(f" rank 1 {victim}  " in line for line in last_words)
        assert any(line.endswith(ERROR) for line in last_words)
        assert any(re.search(rf'/{framework}_train\.py", line \d+, in train', line) for line in last_words)
        assert "epoch=2" not in said

        await until_trains(group, 2, step=HANGS_AT)
        await asyncio.sleep(1)  # now the others wait for it
        stacks = (await ask("stacks")).splitlines()
        assert "rank 1 answers nothing (stopped)" in stacks[0]
        assert any(re.match(r"ranks? 0\b", line) for line in stacks[1:]), "a rank in a collective answers"
        limit = {"metadata": {"annotations": {wire.STALL: str(STALL_AFTER_S)}}}
        await group.cluster.client.patch(JOBSETS, group.namespace, name, limit)
        await until(lambda: group.epoch == 3, "S = 3", timeout_s=SETTLED_S_MAX, also=group.state)
        assert f"pod {victim} was silent first" in await ask("explain")
        raised, hung = [line.strip() for line in (await ask("history")).splitlines() if "Pod " in line][:2]
        went_on = "went on from the shared step 10"
        assert raised == f"a worker ended: Pod {victim} on node-0 with exit code 1: {ERROR} (device); {went_on}"
        assert hung.startswith(f"a worker hung: Pod {victim} on node-0 (Stalled); {went_on}")
        assert group.uids() == {pod["metadata"]["uid"] for pod in group.live()}


def asking(group: Group, name: str) -> Callable[..., Awaitable[str]]:
    """Return what asks `inplace` about the JobSet, prints question and answer, and returns the answer."""
    where = ("--kubeconfig", str(group.cluster.plane.kubeconfig), "-n", group.namespace)

    async def ask(verb: str, *options: str) -> str:
        done = await asyncio.to_thread(run, verb, name, *where, *options)
        assert done.returncode == 0, done.stderr
        print(f"$ inplace {verb} {name} {' '.join(options)}\n{done.stdout}")
        return done.stdout

    return ask


async def until_trains(group: Group, epoch: int, step: int | None = None) -> None:
    """Return when a worker has printed a step of an epoch; None is any step."""
    line = re.compile(rf" step={step or '[0-9]+'} .*epoch={epoch}\b")

    def holds() -> bool:
        return line.search(group.printed("worker")) is not None

    await until(holds, f"step {step} of epoch {epoch}", timeout_s=SETTLED_S_MAX, also=group.state)
