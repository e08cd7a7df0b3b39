"""A new user follows docs/with-kueue.md and docs/with-trainer.md: every command there works on a real cluster."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from testbed.clients.manifests import documents
from testbed.clients.programs import Trainer
from testbed.go_programs import trainer_sources
from testbed.waiting import until
from tests.cluster.clients.conftest import OpenQueue
from tests.cluster.clients.manifests import jobset, replicated_job
from tests.cluster.clients.pages import blocks, changed, page, page_commands, run_command, saved
from tests.cluster.clients.queue import Queue, condition
from tests.cluster.clients.trainjobs import shipped_runtimes
from tests.cluster.clients.world import World

pytestmark = pytest.mark.asyncio(loop_scope="session")

LINES_MAX: Final = 200
PAGES: Final = ("with-kueue.md", "with-trainer.md")
DRY: Final = ("apply --server-side", "apply --server-side --force-conflicts --dry-run=server")


def save(name: str, folder: Path) -> None:
    """Save a page's files."""
    for file, text in saved(name).items():
        (folder / file).write_text(text)


@pytest.mark.parametrize("name", PAGES)
async def test_a_page_is_short(name: str) -> None:
    """A page has at most 200 lines."""
    assert len(page(name).splitlines()) <= LINES_MAX


async def test_with_kueue(world: World, tmp_path: Path) -> None:
    """The commands of "With Kueue" in their order: the group is admitted with exactly the page's quota, and runs."""
    save("with-kueue.md", tmp_path)
    assert set(saved("with-kueue.md")) == {"agents.yaml", "queue.yaml", "train.yaml"}
    said = {}
    for command in page_commands("with-kueue.md"):
        if " -k deploy/" in command:
            await the_install(world, command)
        else:
            said[command] = await run_command(world.plane.kubeconfig, command, folder=tmp_path)
    assert len(said) == 6
    queue = Queue(world, "default")
    workload = await queue.workload_is("Admitted")
    (assigned,) = workload["status"]["admission"]["podSetAssignments"]
    assert assigned["resourceUsage"]["cpu"] == "5050m"
    await queue.lifted(1, count=5)
    await queue.delete()
    await until(lambda: _is_empty(queue), "no Pods in default")


@pytest.mark.parametrize(("cpus", "agents", "is_admitted"), [(5, False, True), (5, True, False), ("5050m", True, True)])
async def test_the_agents_requests(opened: OpenQueue, cpus: int | str, agents: bool, is_admitted: bool) -> None:
    """Five Pods of one CPU fit in a quota of 5 without their agents, and with them in 5050m, as the page says."""
    queue = await opened({"any": cpus})
    manifest = jobset(replicated_job(pods=5))
    await (queue.in_place(manifest) if agents else queue.submit(manifest))
    if is_admitted:
        await queue.admitted()
        return

    async def refusal() -> str:
        found = condition(await queue.workload(), "QuotaReserved")
        return found.get("message", "") if found.get("status") == "False" else ""

    assert "insufficient quota for cpu" in await until(refusal, "a Workload that is not admitted")


async def test_the_table_of_requests() -> None:
    """Each row of the table adds 10m for each Pod's agent."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page("with-kueue.md").splitlines()]
    found = [row for row in rows if len(row) == 4 and row[1].endswith("CPU")]
    assert len(found) == 2
    for pods, worker, without, with_agents in found:
        cpus = int(worker.removesuffix(" CPU"))
        assert (int(without), with_agents) == (int(pods) * cpus, f"{int(pods) * (cpus * 1000 + 10)}m")


async def test_wait_for_pods_ready(world: World) -> None:
    """Kueue starts with the page's waitForPodsReady."""
    (block,) = (each for each in blocks("with-kueue.md") if each.startswith("waitForPodsReady:"))
    settings: dict[str, Any] = yaml.safe_load(block)
    try:
        await world.kueue.run(**settings)
    finally:
        await world.kueue.run()


async def test_with_trainer(world: World, tmp_path: Path) -> None:
    """The commands of "With Kubeflow Trainer": an overlay without JobSet, runtimes, a TrainJob, and what lint says."""
    save("with-trainer.md", tmp_path)
    overlay, runtimes, apply, get, label = page_commands("with-trainer.md")
    (judged,) = (block.strip() for block in blocks("with-trainer.md") if block.startswith("(kubectl get"))
    await the_overlay(world, overlay, tmp_path)
    async with Trainer(world.plane).running():
        await shipped_runtimes(world)  # once its webhook answers
        there = changed(runtimes, [("TRAINER/", f"{os.path.relpath(trainer_sources(), tmp_path)}/")])
        await run_command(world.plane.kubeconfig, there, folder=tmp_path)
        said = await run_command(world.plane.kubeconfig, judged, folder=tmp_path)
        assert said.startswith("JobSet of TrainJob default/train: clean\n")
        await run_command(world.plane.kubeconfig, apply, folder=tmp_path)
        queue = Queue(world, "default")

        async def look() -> list[Any]:
            return list((await queue.jobs()).values())

        (job,) = await until(look, "a Job")
        (container,) = job["spec"]["template"]["spec"]["containers"]
        assert container["command"] == ["/inplace/bin/guard", "--", "torchrun", "train.py"]
        await run_command(world.plane.kubeconfig, get)
        await run_command(
            world.plane.kubeconfig, 'kubectl patch trainjob train --type merge -p \'{"spec":{"suspend":true}}\''
        )
        await until(lambda: _is_empty(queue), "no Pods in default")
        await run_command(world.plane.kubeconfig, label)
        await run_command(world.plane.kubeconfig, "kubectl delete trainjob train")


async def the_install(world: World, command: str) -> None:
    """An API server takes what installs our controller; not for good, this world runs a controller already."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "inplace-system"}}
    await world.applier.apply_one(namespace)
    await run_command(world.plane.kubeconfig, changed(command, [DRY]))


async def the_overlay(world: World, command: str, folder: Path) -> None:
    """The overlay has Trainer and nothing of JobSet, and an API server takes it."""
    file = folder / "kustomization.yaml"
    file.write_text(file.read_text().replace("TRAINER/", f"{os.path.relpath(trainer_sources(), folder)}/"))
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kubeflow-system"}}
    await world.applier.apply_one(namespace)  # a dry run makes none, and refuses what would be in it
    rendered, _, _ = command.partition(" | ")
    found = documents(await run_command(world.plane.kubeconfig, rendered, folder=folder))
    assert {"CustomResourceDefinition", "Deployment", "ClusterRole"} <= {each["kind"] for each in found}
    assert [each["metadata"]["name"] for each in found if "jobset" in each["metadata"]["name"]] == []
    # Not for good: its webhooks would be looked for at a Service.
    dry = changed(command, [DRY])
    await run_command(world.plane.kubeconfig, dry, folder=folder)


async def _is_empty(queue: Queue) -> bool:
    return not await queue.pods()
