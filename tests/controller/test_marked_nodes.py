"""Marked nodes with the whole controller: who is asked about, who leaves, what it costs, and what must not wait."""

from __future__ import annotations

from itertools import pairwise

import pytest

from inplace.common.kube.http.request import Request
from inplace.common.kube.resources import NODES, PODS, KubeObject
from inplace.common.wire import names as wire
from inplace.simulator.cluster.nodes import node
from tests.common.kube.answers import refusal
from tests.controller.crew import Crew
from tests.controller.manifests import jobset, replicated_job
from tests.controller.rig import Rig

pytestmark = pytest.mark.virtual_time

PODS_OF_GROUP = 3
CORDON: KubeObject = {"spec": {"unschedulable": True}}


def manifest(name: str = "train", *, pods: int = PODS_OF_GROUP, **annotations: str) -> KubeObject:
    """Return a JobSet; annotations by the names of common/wire/names.py."""
    given = {wire.FAILURES: "backoff=0"} | {getattr(wire, key): value for key, value in annotations.items()}
    return jobset(name, jobs=[replicated_job(replicas=1, pods=pods)], restarts_max=100, annotations=given)


async def started(rig: Rig, wanted: KubeObject) -> Crew:
    """Bring a group to epoch 1; the Pod of index i is on node ni."""
    crew = await rig.with_pods(wanted)
    await rig.settle()
    for (_, index), pod in crew.pods.items():
        await rig.admin.create(NODES, None, node(f"n{index}", pods=8, now="2026-01-01T00:00:00Z"))
        await crew.run_on(pod, f"n{index}")
    await rig.run_epoch(crew, 1)
    rig.requests.clear()
    return crew


async def mark(rig: Rig, name: str, change: KubeObject = CORDON) -> None:
    """Change a node as kubectl does."""
    await rig.admin.patch(NODES, None, name, change)


async def taint(rig: Rig, name: str, effect: str = "NoSchedule") -> None:
    """Taint a node."""
    await mark(rig, name, {"spec": {"taints": [{"key": "broken", "effect": effect}]}})


def node_reads(rig: Rig) -> list[str]:
    """Return the nodes that were read."""
    return [request.path.rpartition("/")[2] for request in rig.requests if "/nodes/" in request.path]


def pod_reads(rig: Rig) -> int:
    """Return how many single Pods were read."""
    return sum("fieldSelector=metadata.name" in request.path for request in rig.requests)


async def leaving(crew: Crew) -> list[str]:
    """Return the Pods that the status says leave their node."""
    uses = (await crew.status()).get(wire.ESCALATION_USES) or ()
    return [use["pod"] for use in uses if use["escalationStep"] == "LeaveNode"]


async def test_a_pod_leaves_a_cordoned_node(rig: Rig) -> None:
    """It is ended, the group waits for its replacement, then runs; the status names it, one Event says why."""
    crew = await started(rig, manifest())
    await mark(rig, "n0")
    failed = await rig.fail(crew)
    assert await crew.epochs() == (1, 1)
    assert await rig.is_ending(failed)
    assert await leaving(crew) == [failed]
    (event,) = await rig.events("PodLeavesNode")
    assert event["note"].startswith(f"pod {failed} is replaced: node n0: cordoned; the group waits until another node")
    await rig.meet(crew, 2)
    assert await crew.epochs() == (1, 1), "it must not sync with a Pod that is about to end"
    await crew.set_phase(failed, "Failed")
    replacement = await crew.replace("train-workers-0", 0)
    await crew.run_on(replacement, "n9")
    await rig.meet(crew, 2)
    assert await crew.epochs() == (2, 1), "one restart, and no epoch is skipped"
    assert not any([await rig.is_ending(pod) for pod in crew.pods.values()])
    assert rig.sample("inplace_node_reads_total", result="leaves") == 1


async def test_a_healthy_node_costs_one_read(rig: Rig) -> None:
    """And only at the first failure: not while all is well, not at the announcements."""
    crew = await started(rig, manifest())
    await rig.settle(700)
    assert node_reads(rig) == []
    failed = await rig.fail(crew)
    await rig.run_epoch(crew, 2)
    assert (node_reads(rig), pod_reads(rig)) == (["n0"], 0)
    assert await crew.epochs() == (2, 1)
    assert not await rig.is_ending(failed)
    assert rig.sample("inplace_node_reads_total", result="unmarked") == 1
    assert await rig.events("PodStaysOnNode") == []


async def test_a_taint_that_the_template_tolerates_costs_no_second_read(rig: Rig) -> None:
    """As on each cluster whose GPU nodes are tainted."""
    wanted = manifest()
    pods = wanted["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    pods["tolerations"] = [{"key": "broken", "operator": "Exists"}]
    crew = await started(rig, wanted)
    await taint(rig, "n0")
    failed = await rig.fail(crew)
    assert (node_reads(rig), pod_reads(rig)) == (["n0"], 0)
    assert not await rig.is_ending(failed)


async def test_a_taint_that_only_the_pod_tolerates_is_no_reason(rig: Rig) -> None:
    """Admission adds tolerations to Pods."""
    crew = await started(rig, manifest())
    await taint(rig, "n0")
    before = (await rig.admin.get(PODS, "default", crew.pod_at(0)))["spec"].get("tolerations") or []
    more = {"spec": {"tolerations": [*before, {"key": "broken", "operator": "Exists"}]}}
    await rig.admin.patch(PODS, "default", crew.pod_at(0), more)
    failed = await rig.fail(crew)
    assert (node_reads(rig)[:1], pod_reads(rig)) == (["n0"], 1)
    assert not await rig.is_ending(failed)


async def test_who_opts_out_is_not_asked_about(rig: Rig) -> None:
    """No request, and the Pod restarts where it is."""
    crew = await started(rig, manifest(NODES="marked=stay"))
    await mark(rig, "n0")
    failed = await rig.fail(crew)
    await rig.run_epoch(crew, 2)
    assert (node_reads(rig), await rig.is_ending(failed)) == ([], False)
    assert await crew.epochs() == (2, 1)


async def test_a_value_that_cannot_be_read_is_said_and_leaves(rig: Rig) -> None:
    """The default holds."""
    crew = await started(rig, manifest(NODES="marked=never"))
    problem = await crew.condition("SpecProblem")
    assert "expected leave or stay, saw 'never'" in problem["message"]
    await mark(rig, "n0")
    assert await rig.is_ending(await rig.fail(crew))


async def test_where_all_nodes_are_cordoned_the_group_restarts_in_place(rig: Rig) -> None:
    """An Event says why; another restart on the same nodes says it again at most as one series."""
    crew = await started(rig, manifest())
    for name in ("n0", "n1", "n2"):
        await mark(rig, name)
    failed = await rig.fail(crew)
    await rig.run_epoch(crew, 2)
    assert await crew.epochs() == (2, 1)
    assert not await rig.is_ending(failed)
    (event,) = await rig.events("PodStaysOnNode")
    assert "n1 and n2 of its group are marked as well" in event["note"]
    assert rig.sample("inplace_node_reads_total", result="stays") == 1


async def test_a_pod_of_one_host_stays(rig: Rig) -> None:
    """As Kueue places them: a replacement could run nowhere else."""
    wanted = manifest()
    pods = wanted["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    pods["nodeSelector"] = {"kubernetes.io/hostname": "n0"}
    crew = await started(rig, wanted)
    await mark(rig, "n0")
    failed = await rig.fail(crew)
    await rig.run_epoch(crew, 2)
    assert await crew.epochs() == (2, 1)
    assert not await rig.is_ending(failed)
    (event,) = await rig.events("PodStaysOnNode")
    assert "because it asks for this very node" in event["note"]


async def test_a_silent_or_missing_node_keeps_its_pods(rig: Rig) -> None:
    """Only kubelet could end them; Kubernetes gives them up by itself."""
    crew = await started(rig, manifest())
    await mark(rig, "n0", CORDON | {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}})
    unknown = {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
    await rig.admin.patch(NODES, None, "n0", unknown, subresource="status")
    await rig.admin.delete(NODES, None, "n1")
    for epoch, index in ((2, 0), (3, 1)):
        failed = await rig.fail(crew, index)
        await rig.run_epoch(crew, epoch)
        assert not await rig.is_ending(failed)
    assert (await crew.epochs())[0] == 3


async def test_the_next_epoch_waits_for_a_slow_answer(rig: Rig) -> None:
    """The epoch is deprecated at once; with all Pods at the barrier S waits, and then the Pod leaves."""
    crew = await started(rig, manifest())
    await mark(rig, "n0")
    rig.latency_s = lambda request: 0.9 if request.path.endswith("/nodes/n0") else 0.0
    failed = await rig.fail(crew)
    assert await crew.epochs() == (1, 1)
    await rig.meet(crew, 2, 0.5)
    assert (await crew.epochs(), await leaving(crew)) == ((1, 1), [])
    await rig.settle(1)
    assert (await crew.epochs(), await leaving(crew)) == ((1, 1), [failed])
    assert await rig.is_ending(failed)


@pytest.mark.parametrize(("slow_s", "before_s", "after_s"), [(0.5, 0.4, 0.6), (100.0, 0.9, 1.1)])
async def test_the_next_epoch_waits_a_second_at_most(rig: Rig, slow_s: float, before_s: float, after_s: float) -> None:
    """On a healthy node it begins with the answer, or a second after the question."""
    crew = await started(rig, manifest())
    rig.latency_s = lambda request: slow_s if "/nodes/" in request.path else 0.0
    await crew.set_worker(crew.pod_at(0), run=1, exit_code=1)
    await rig.meet(crew, 2, before_s)
    assert await crew.epochs() == (1, 1)
    await rig.settle(after_s - before_s)
    assert await crew.epochs() == (2, 1)


async def test_a_pod_alone_leaves_although_its_announcement_is_the_first_sign(rig: Rig) -> None:
    """Its epoch is not begun in the pass that sees it."""
    crew = await started(rig, manifest(pods=1))
    await mark(rig, "n0")
    failed = crew.pod_at(0)
    await rig.announce(crew, failed, 2, 0.2)
    assert (await crew.epochs(), await leaving(crew)) == ((1, 1), [failed])
    await crew.set_phase(failed, "Failed")
    await crew.run_on(await crew.replace("train-workers-0", 0), "n9")
    await rig.run_epoch(crew, 2)
    assert await crew.epochs() == (2, 1)


@pytest.mark.parametrize("fault", ["hangs", "refuses"])
async def test_without_an_answer_the_pod_restarts_in_place(rig: Rig, fault: str) -> None:
    """It is counted, and the next question is answered."""
    crew = await started(rig, manifest())
    await mark(rig, "n0")
    if fault == "hangs":
        rig.latency_s = lambda request: 1000.0 if request.path.endswith("/nodes/n0") else 0.0
    else:
        rig.fault = lambda request: refusal(403, "Forbidden") if request.path.endswith("/nodes/n0") else None
    failed = await rig.fail(crew)
    await rig.settle(2)
    await rig.run_epoch(crew, 2)
    assert await crew.epochs() == (2, 1)
    assert not await rig.is_ending(failed)
    assert rig.sample("inplace_node_reads_total", result="unanswered") == 1
    rig.latency_s, rig.fault = lambda _: 0.0, lambda _: None
    await mark(rig, "n1")
    await mark(rig, "n0", {"spec": {"unschedulable": None}})
    assert await rig.is_ending(await rig.fail(crew, 1))


async def test_many_groups_on_one_node_cost_one_read(rig: Rig) -> None:
    """What is known of it serves for some seconds; then it is read again."""
    crews = [await rig.submit(manifest(f"g{number}", pods=1)) for number in range(20)]
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
        crew = await rig.submit(manifest(f"g{number}", pods=1))
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


async def test_a_pod_that_a_barrier_waits_for_leaves_its_node(rig: Rig) -> None:
    """Its node was well when its worker failed, and is cordoned while the group waits for it."""
    crew = await started(rig, manifest())
    missing = await rig.fail(crew)
    await rig.meet(crew, 2, 5, pods=[pod for pod in crew.pods.values() if pod != missing])
    assert node_reads(rig) == ["n0"]
    await mark(rig, "n0")
    await rig.settle(40)
    assert await rig.is_ending(missing)
    assert await leaving(crew) == [missing]
    await crew.set_phase(missing, "Failed")
    await crew.replace("train-workers-0", 0)
    await rig.run_epoch(crew, 2)
    assert await crew.epochs() == (2, 1)


async def test_a_barrier_that_waits_long_reads_each_node_twice_a_minute_at_most(rig: Rig) -> None:
    """And one Pod leaves at a time, the next when the first has ended."""
    crew = await started(rig, manifest(pods=12))
    await rig.fail(crew)
    rig.requests.clear()
    await rig.settle(300)
    reads = node_reads(rig)
    assert len(set(reads)) == 10, "as many as are named"
    assert all(reads.count(name) <= 10 for name in reads)
    for index in (0, 1):
        await mark(rig, f"n{index}")
    await rig.settle(70)
    assert [await rig.is_ending(crew.pod_at(index)) for index in (0, 1)] == [True, False]
    await crew.set_phase(crew.pod_at(0), "Failed")
    await rig.settle()
    assert await rig.is_ending(crew.pod_at(1))
    assert await leaving(crew) == [crew.pod_at(1)]


async def test_a_pod_that_waits_to_start_leaves_its_node(rig: Rig) -> None:
    """Also before the group ran for the first time."""
    crew = await rig.submit(manifest())
    await rig.admin.create(NODES, None, node("n0", pods=8, now="2026-01-01T00:00:00Z"))
    await crew.make_pods()
    await rig.settle()
    await crew.bind(crew.pod_at(0), "n0")
    await mark(rig, "n0")
    await rig.settle(60)
    assert await rig.is_ending(crew.pod_at(0))
    assert await leaving(crew) == [crew.pod_at(0)]


async def test_a_drain_asks_nothing(rig: Rig) -> None:
    """Pods that are deleted, and those that wait for a node, are nobody's question: a drain is as fast as ever."""
    crew = await started(rig, manifest())
    for index in range(PODS_OF_GROUP):
        await mark(rig, f"n{index}")
        await rig.admin.delete(PODS, "default", crew.pod_at(index), grace_period_s=30)
    await rig.settle(0.2)
    assert await crew.epochs() == (1, 1) or await crew.epochs() == (1, 0)
    for index in range(PODS_OF_GROUP):
        await crew.remove(crew.pod_at(index))
    await crew.make_pods()
    await rig.settle(60)
    await rig.run_epoch(crew, 2)
    assert (await crew.epochs())[0] == 2
    assert (node_reads(rig), pod_reads(rig)) == ([], 0)
    assert await leaving(crew) == []


async def test_a_taint_that_comes_and_goes_moves_one_pod_for_each_restart(rig: Rig) -> None:
    """A decision stands in the status: what the node is like later changes nothing."""
    crew = await started(rig, manifest())
    await taint(rig, "n0")
    failed = await rig.fail(crew)
    assert await rig.is_ending(failed)
    for _ in range(5):
        await mark(rig, "n0", {"spec": {"taints": None}})
        await rig.settle(1)
        await taint(rig, "n0")
        await rig.settle(1)
    assert await leaving(crew) == [failed]
    assert len(await rig.events("PodLeavesNode")) == 1
    await crew.set_phase(failed, "Failed")
    await crew.run_on(await crew.replace("train-workers-0", 0), "n9")
    await rig.run_epoch(crew, 2)
    assert (await crew.epochs())[0] == 2
    assert node_reads(rig) == ["n0", "n1", "n2"]


async def test_a_pod_with_an_unhealthy_device_leaves(rig: Rig) -> None:
    """Kubelet says so in the Pod's status; the node itself looks well."""
    crew = await started(rig, manifest())
    failed = crew.pod_at(0)
    health = [{"name": "nvidia.com/gpu", "resources": [{"resourceID": "gpu-3", "health": "Unhealthy"}]}]
    ended = {"name": "worker", "image": "i", "imageID": "", "ready": False, "restartCount": 0}
    ended |= {"containerID": f"containerd://{failed}-1", "state": {"terminated": {"exitCode": 1}}}
    await crew.set_pod(failed, containerStatuses=[ended | {"allocatedResourcesStatus": health}])
    await rig.settle(0.2)
    assert await rig.is_ending(failed)
    (event,) = await rig.events("PodLeavesNode")
    assert "device nvidia.com/gpu gpu-3 is unhealthy" in event["note"]


async def test_an_escalation_counts_its_step_once(rig: Rig) -> None:
    """A Pod that leaves takes no step of its own, and the step of its failure stays."""
    crew = await started(rig, manifest(ESCALATION="InPlace=2,RecreateJobs=1,window=3600"))
    await mark(rig, "n0")
    failed = await rig.fail(crew)
    uses = (await crew.status())[wire.ESCALATION_USES]
    assert [(use["escalationStep"], use.get("pod")) for use in uses] == [("InPlace", None), ("LeaveNode", failed)]
    await crew.set_phase(failed, "Failed")
    await crew.run_on(await crew.replace("train-workers-0", 0), "n1")
    await rig.run_epoch(crew, 2)
    await rig.settle(10)
    await rig.fail(crew, 1)
    uses = (await crew.status())[wire.ESCALATION_USES]
    assert [use["escalationStep"] for use in uses] == ["InPlace", "InPlace"]


async def test_a_pod_that_cannot_be_ended_restarts_in_place(rig: Rig) -> None:
    """After a minute of refusals the group goes on with it, and is not held up again."""
    crew = await started(rig, manifest())
    await mark(rig, "n0")
    rig.fault = lambda request: (
        refusal(403, "Forbidden") if request.method == "PATCH" and "/pods/" in request.path else None
    )
    await rig.fail(crew)
    await rig.meet(crew, 2, 30)
    assert await crew.epochs() == (1, 1)
    await rig.settle(120)
    assert await crew.epochs() == (2, 1)
    assert len(await rig.events("PodNotReplaced")) == 1


async def test_a_new_leader_ends_the_pod(rig: Rig) -> None:
    """The status says who leaves; the new leader asks about nobody for that."""
    crew = await started(rig, manifest())
    await mark(rig, "n0")
    rig.fault = lambda request: (
        refusal(403, "Forbidden") if request.method == "PATCH" and "/pods/" in request.path else None
    )
    failed = await rig.fail(crew)
    assert await leaving(crew) == [failed]
    assert not await rig.is_ending(failed)
    rig.fault = lambda _: None
    await rig.settle(5)
    assert await rig.is_ending(failed)
