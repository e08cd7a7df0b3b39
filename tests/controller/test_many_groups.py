"""Groups that share nodes: what the reads of marked nodes cost, and who finds which node bad."""

from __future__ import annotations

from itertools import pairwise

import pytest

from inplace.common.kube.http.request import Request
from inplace.common.kube.resources import NODES, PODS, KubeObject
from inplace.common.wire import names as wire
from inplace.simulator.cluster.nodes import node
from tests.controller.manifests import jobset, replicated_job
from tests.controller.rig import Rig

pytestmark = pytest.mark.virtual_time


def manifest(name: str = "train", *, pods: int = 1, **annotations: str) -> KubeObject:
    """Return a JobSet; annotations by the names of common/wire/names.py."""
    given = {wire.FAILURES: "backoff=0"} | {getattr(wire, key): value for key, value in annotations.items()}
    return jobset(name, jobs=[replicated_job(replicas=1, pods=pods)], restarts_max=100, annotations=given)


def node_reads(rig: Rig) -> list[str]:
    """Return the nodes that were read."""
    return [request.path.rpartition("/")[2] for request in rig.requests if "/nodes/" in request.path]


async def test_many_groups_on_one_node_cost_one_read(rig: Rig) -> None:
    """What is known of it serves for some seconds; then it is read again."""
    crews = [await rig.submit(manifest(f"g{number}")) for number in range(20)]
    await rig.admin.create(NODES, None, node("n0", pods=50, now="2026-01-01T00:00:00Z"))
    for crew in crews:
        await crew.make_pods()
        await rig.settle(0.1)
        await crew.run_on(crew.pod_at(0), "n0")
        await rig.run_epoch(crew, 1)
    rig.requests.clear()
    for crew in crews:
        await crew.set_worker(crew.pod_at(0), run=1, exit_code=1)
    await rig.settle()
    assert node_reads(rig) == ["n0"]
    for crew in crews:
        await rig.run_epoch(crew, 2)
    await rig.settle(10)
    await crews[0].set_worker(crews[0].pod_at(0), run=2, exit_code=1)
    await rig.settle()
    assert node_reads(rig) == ["n0", "n0"]


async def test_nodes_that_fail_together_are_read_one_after_the_other(rig: Rig) -> None:
    """However many fail, one read is under way, and after a second those that still wait are not read at all."""
    began_s: list[float] = []
    crews = []
    for number in range(40):
        crew = await rig.submit(manifest(f"g{number}"))
        await rig.admin.create(NODES, None, node(f"n{number}", pods=8, now="2026-01-01T00:00:00Z"))
        await crew.make_pods()
        await rig.settle(0.1)
        await crew.run_on(crew.pod_at(0), f"n{number}")
        await rig.run_epoch(crew, 1)
        crews.append(crew)
    rig.requests.clear()

    def latency_s(request: Request) -> float:
        if "/nodes/" not in request.path:
            return 0.0
        began_s.append(rig.clock.monotonic_s())
        return 0.1

    rig.latency_s = latency_s
    for crew in crews:
        await crew.set_worker(crew.pod_at(0), run=1, exit_code=1)
    await rig.settle(10)
    assert all(after - before >= 0.0999 for before, after in pairwise(began_s))
    assert 8 <= len(began_s) <= 12
    assert rig.sample("inplace_node_reads_total", result="unanswered") >= 28
    assert all([await crew.epochs() == (1, 1) for crew in crews])


async def test_two_jobsets_judge_for_themselves(rig: Rig) -> None:
    """What one blames does not concern the other, on the same node."""
    one, other = [await rig.with_pods(manifest(name, pods=3, NODES="2")) for name in ("one", "other")]
    await rig.settle()
    for crew in (one, other):
        await crew.run_on(crew.pod_at(0), "n0")
        await rig.run_epoch(crew, 1)
    for crew, epoch in ((one, 2), (other, 2), (one, 3)):
        failed = await rig.fail(crew)
        assert await rig.is_ending(failed) == (epoch == 3)
        if epoch == 2:
            await rig.run_epoch(crew, epoch)
    assert [event["regarding"]["name"] for event in await rig.events("NodeAvoided")] == ["one"]
    await other.remove(other.pod_at(0))
    await other.make_pods()
    await rig.settle()
    assert "affinity" not in (await rig.admin.get(PODS, "default", other.pod_at(0)))["spec"]
