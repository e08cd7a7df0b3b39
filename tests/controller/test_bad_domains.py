"""A Job leaves its domain (here a rack) when a bad node cannot be avoided there: what is recreated, counted, told."""

from __future__ import annotations

from typing import Any

import pytest

from inplace.common.kube.resources import NODES, PODS, KubeObject
from inplace.common.wire import names as wire
from inplace.common.wire.worker_failure import WorkerFailure, failure_text
from tests.common.kube.answers import refusal
from tests.controller.crew import Crew
from tests.controller.manifests import jobset, replicated_job
from tests.controller.rig import Rig

pytestmark = pytest.mark.virtual_time

RACK = "example.com/rack"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
FIRST, OTHER = "train-workers-0", "train-workers-1"


def racks(*, restarts_max: int = 9, exclusive: bool = True, **annotations: str) -> KubeObject:
    """Return a JobSet of two Jobs of three Pods, each in a rack of its own; one failure makes a node bad."""
    given = {wire.NODES: "1", wire.FAILURES: "backoff=0"}
    given |= {getattr(wire, name): value for name, value in annotations.items()}
    given |= {wire.EXCLUSIVE_TOPOLOGY: RACK} if exclusive else {}
    jobs = [replicated_job(replicas=2, pods=3)]
    return jobset("train", jobs=jobs, restarts_max=restarts_max, annotations=given)


async def submitted(rig: Rig, manifest: KubeObject) -> Crew:
    """Create nodes a0 to a4 of rack a, b0 to b4 of b and c0 to c4 of c, and a JobSet with Pods in a and b."""
    for rack in "abc":
        for index in range(5):
            node = {"metadata": {"name": f"{rack}{index}", "labels": {RACK: rack}}, "apiVersion": "v1", "kind": "Node"}
            await rig.admin.create(NODES, None, node)
    crew = await rig.with_pods(manifest)
    for job, rack in ((FIRST, "a"), (OTHER, "b")):
        await place(rig, crew, job, rack)
    return crew


async def started(rig: Rig, manifest: KubeObject) -> Crew:
    """Bring it to epoch 1."""
    crew = await submitted(rig, manifest)
    await rig.run_epoch(crew, 1)
    return crew


async def place(rig: Rig, crew: Crew, job: str, rack: str) -> None:
    """Bring the Pods of a Job to the nodes 0 to 2 of a rack, the leader first."""
    for index in range(3):
        await rig.settle(0.2)
        await crew.run_on(crew.pods[job, index], f"{rack}{index}")


async def fail(rig: Rig, crew: Crew, job: str, index: int) -> str:
    """Let a worker die; return its Pod."""
    pod = crew.pods[job, index]
    await rig.set_worker(crew, pod, 0.2, run=(await crew.epochs())[0], exit_code=1)
    return pod


async def move(rig: Rig, crew: Crew, job: str, index: int, node: str) -> None:
    """Let kubelet end a Pod that is to be replaced, and bring its replacement to a node."""
    assert await rig.is_ending(crew.pods[job, index])
    await crew.set_phase(crew.pods[job, index], "Failed")
    await crew.replace(job, index)
    await rig.settle(0.2)
    await crew.run_on(crew.pods[job, index], node)
    await rig.settle(0.2)


async def renewed(rig: Rig, crew: Crew, rack: str) -> KubeObject:
    """Make the Pods of the new Job, in a rack; return what the leader prefers of nodes."""
    await rig.settle()
    for pod in (await rig.admin.list(PODS, "default"))["items"]:
        if "deletionTimestamp" in pod["metadata"]:
            await crew.remove(pod["metadata"]["name"])
    await rig.settle()
    there = {pod["metadata"]["name"] for pod in (await rig.admin.list(PODS, "default"))["items"]}
    crew.pods = {slot: pod for slot, pod in crew.pods.items() if pod in there}
    await crew.make_pods()
    await rig.settle(0.2)
    spec: KubeObject = (await rig.admin.get(PODS, "default", crew.pods[FIRST, 0]))["spec"]
    assert not spec.get("schedulingGates")
    await place(rig, crew, FIRST, rack)
    preferences: KubeObject = spec["affinity"].get("nodeAffinity", {})
    return preferences


async def restarts_of(crew: Crew) -> tuple[list[int], list[int]]:
    """Return how often each Job was recreated alone, and how often that was counted."""
    (counters,) = (await crew.status())["replicatedJobsStatus"]
    return counters.get("jobRestarts") or [0, 0], counters.get("jobRestartsCountTowardsMax") or [0, 0]


def budget(rig: Rig, controller: int = 0) -> float:
    """Return how many restarts are left, as a controller tells it."""
    return rig.sample("inplace_restart_budget_remaining", controller, namespace="default", jobset="train")


def domains_shunned(affinity: KubeObject) -> list[Any]:
    """Return the racks that a Pod prefers to avoid."""
    terms = affinity.get(PREFERRED) or []
    found = [one for term in terms for one in term["preference"].get("matchExpressions") or ()]
    assert all((one["key"], one["operator"]) == (RACK, "NotIn") for one in found)
    return [value for one in found for value in one["values"]]


async def test_a_job_leaves_a_rack_with_too_many_bad_nodes(rig: Rig) -> None:
    """Of three nodes one may be avoided: with the second bad one the Job is made anew elsewhere, counted once."""
    crew = await started(rig, racks())
    before = await crew.job_uids()
    await fail(rig, crew, FIRST, 1)
    await move(rig, crew, FIRST, 1, "a3")
    await rig.run_epoch(crew, 2)
    assert (await crew.epochs(), await crew.job_uids(), budget(rig)) == ((2, 1), before, 8)
    await fail(rig, crew, FIRST, 2)
    assert await restarts_of(crew) == ([1, 0], [1, 0])
    (told,) = await rig.events("JobLeavesDomain")
    assert told["note"] == (
        f"job {FIRST} is recreated: its domain ({RACK}) has 2 bad nodes, of which 1 may be avoided: a1 a2; it is "
        "counted once, and the others wait for it"
    )
    assert (await crew.last_restart())["escalationStep"] == "LeaveDomain"
    await crew.announce_all(3, [pod for (job, _), pod in crew.pods.items() if job == OTHER])
    assert domains_shunned(await renewed(rig, crew, "c")) == ["a"]
    made = await crew.job_uids()
    assert (made[OTHER], made[FIRST] == before[FIRST]) == (before[OTHER], False)
    assert await crew.epochs() == (2, 2)
    await rig.run_epoch(crew, 3)
    assert (await crew.epochs(), budget(rig)) == ((3, 2), 7)


async def test_no_domain_is_counted_twice(rig: Rig) -> None:
    """The bad nodes of the rack that a Job has left do not count against the next: one bad node there is one."""
    crew = await started(rig, racks())
    await fail(rig, crew, FIRST, 1)
    await move(rig, crew, FIRST, 1, "a3")
    await rig.run_epoch(crew, 2)
    await fail(rig, crew, FIRST, 2)
    await renewed(rig, crew, "c")
    await rig.run_epoch(crew, 3)
    await fail(rig, crew, FIRST, 1)
    await move(rig, crew, FIRST, 1, "c3")
    await rig.run_epoch(crew, 4)
    assert await restarts_of(crew) == ([1, 0], [1, 0])
    assert (await crew.epochs(), budget(rig)) == ((4, 3), 6)
    assert len(await rig.events("JobLeavesDomain")) == 1


async def test_a_job_that_the_failure_policy_recreated_begins_anew(rig: Rig) -> None:
    """Upstream's RestartJob counts once, and the bad node of the Job before does not count against the new one."""
    manifest = racks()
    manifest["spec"]["failurePolicy"]["rules"] = [{"name": "all", "action": "RestartJob"}]
    crew = await started(rig, manifest)
    await fail(rig, crew, FIRST, 1)
    await crew.finish_job(FIRST, "Failed", reason="PodFailurePolicy")
    assert domains_shunned(await renewed(rig, crew, "c")) == ["a"]
    await rig.run_epoch(crew, 2)
    assert (await restarts_of(crew), budget(rig)) == (([1, 0], [1, 0]), 8)
    await fail(rig, crew, FIRST, 1)
    await move(rig, crew, FIRST, 1, "c3")
    await rig.run_epoch(crew, 3)
    assert (await restarts_of(crew), budget(rig)) == (([1, 0], [1, 0]), 7)
    assert await rig.events("JobLeavesDomain") == []


async def test_bad_nodes_of_several_jobs_recreate_none(rig: Rig) -> None:
    """Each rack has one bad node, which is avoided; both Jobs stay."""
    crew = await started(rig, racks())
    before = await crew.job_uids()
    for epoch, job, node in ((2, FIRST, "a3"), (3, OTHER, "b3")):
        await fail(rig, crew, job, 1)
        await move(rig, crew, job, 1, node)
        await rig.run_epoch(crew, epoch)
    assert await crew.job_uids() == before
    assert await rig.events("JobLeavesDomain") == []


async def test_a_rack_without_another_node_is_left(rig: Rig) -> None:
    """The replacement came back to the bad node, the only one of the rack: the verdict stands, and the Job leaves."""
    crew = await started(rig, racks())
    await fail(rig, crew, FIRST, 1)
    await move(rig, crew, FIRST, 1, "a1")
    (told,) = await rig.events("JobLeavesDomain")
    assert f"its domain ({RACK}) has no other node than a1, which is bad" in told["note"]
    assert await rig.events("NodeVerdictTakenBack") == []
    assert domains_shunned(await renewed(rig, crew, "c")) == ["a"]
    await rig.run_epoch(crew, 2)
    assert (await crew.epochs(), budget(rig)) == ((2, 1), 8)


async def test_without_another_rack_the_verdict_is_taken_back(rig: Rig) -> None:
    """The new Job came back to the same rack and node: it stays, and the node is forgotten."""
    crew = await started(rig, racks())
    await fail(rig, crew, FIRST, 1)
    await move(rig, crew, FIRST, 1, "a1")
    await renewed(rig, crew, "a")
    await rig.run_epoch(crew, 2)
    assert (await crew.epochs(), budget(rig)) == ((2, 1), 8)
    assert len(await rig.events("JobLeavesDomain")) == 1
    assert len(await rig.events("NodeVerdictTakenBack")) == 1
    assert wire.NODE_FAILURES not in await crew.status() or not (await crew.status())[wire.NODE_FAILURES]


async def test_a_rack_that_is_gone_is_left_without_a_recreation(rig: Rig) -> None:
    """Where all Pods of a Job are gone, nothing holds their replacements in the rack: the leader finds another one."""
    crew = await started(rig, racks())
    before = await crew.job_uids()
    for index in range(3):
        await crew.remove(crew.pods[FIRST, index])
    await rig.settle(0.2)
    assert domains_shunned(await renewed(rig, crew, "c")) == []
    for index in (1, 2):
        spec = (await rig.admin.get(PODS, "default", crew.pods[FIRST, index]))["spec"]
        assert spec["nodeSelector"] == {RACK: "c"}
    await rig.run_epoch(crew, 2)
    assert (await crew.epochs(), await crew.job_uids(), budget(rig)) == ((2, 1), before, 8)


@pytest.mark.parametrize("how", ["shared", "node-selector"])
async def test_only_a_job_that_finds_a_domain_leaves_one(rig: Rig, how: str) -> None:
    """Elsewhere a Pod is replaced alone, and a node to which it comes back is forgotten, as ever."""
    manifest = racks(exclusive=how != "shared")
    if how == "node-selector":
        manifest["metadata"]["annotations"][wire.NODE_SELECTOR_STRATEGY] = "true"
    crew = await started(rig, manifest)
    before = await crew.job_uids()
    for epoch, index, node in ((2, 1, "a3"), (3, 2, "a4"), (4, 0, "a0")):
        await fail(rig, crew, FIRST, index)
        await move(rig, crew, FIRST, index, node)
        await rig.run_epoch(crew, epoch)
    assert await crew.job_uids() == before
    assert await rig.events("JobLeavesDomain") == []
    assert len(await rig.events("NodeVerdictTakenBack")) == 1


async def fail_checks(rig: Rig, crew: Crew) -> None:
    """Let the checks of two Pods of one rack fail."""
    for index in (1, 2):
        await crew.fail_check(crew.pods[FIRST, index])
    await rig.settle()


async def test_failed_checks_count(rig: Rig) -> None:
    """The checks of two Pods failed before the group ever ran: their Job is made anew, and that is counted."""
    crew = await submitted(rig, racks())
    await fail_checks(rig, crew)
    assert await restarts_of(crew) == ([1, 0], [1, 0])
    assert domains_shunned(await renewed(rig, crew, "c")) == ["a"]
    await rig.run_epoch(crew, 1)
    assert (await crew.epochs(), budget(rig)) == ((1, 0), 8)


async def test_a_pod_of_another_job_leaves_first(rig: Rig) -> None:
    """Of two verdicts in one restart the recreation waits until the other Job's Pod is gone, and calls nothing off."""
    crew = await started(rig, racks())
    before = await crew.job_uids()
    left = await fail(rig, crew, OTHER, 1)
    await fail_checks(rig, crew)
    assert await crew.job_uids() == before
    assert await restarts_of(crew) == ([0, 0], [0, 0])
    await move(rig, crew, OTHER, 1, "b3")
    assert left not in crew.pods.values()
    assert await restarts_of(crew) == ([1, 0], [1, 0])
    await renewed(rig, crew, "c")
    await rig.run_epoch(crew, 2)
    assert (await crew.epochs(), (await crew.job_uids())[OTHER], budget(rig)) == ((2, 1), before[OTHER], 8)


@pytest.mark.parametrize(
    "manifest",
    [racks(restarts_max=0), racks(ESCALATION="InPlace=1,window=5")],
    ids=["maxRestarts", "escalation"],
)
async def test_without_budget_the_job_stays(rig: Rig, manifest: KubeObject) -> None:
    """No recreation is outside of the budgets, and a verdict alone fails no JobSet."""
    crew = await submitted(rig, manifest)
    if wire.ESCALATION in manifest["metadata"]["annotations"]:
        used = {"escalationStep": "InPlace", "startedAt": "2200-01-01T00:00:00Z", "epoch": 0, "recreation": True}
        await rig.edit({"status": {wire.ESCALATION_USES: [used]}}, subresource="status")
    before = await crew.job_uids()
    await fail_checks(rig, crew)
    assert await crew.job_uids() == before
    assert (await restarts_of(crew))[1] == [0, 0]
    assert await crew.find_condition("Failed") is None


async def test_one_failure_is_one_use_of_the_escalation(rig: Rig) -> None:
    """The use that the failure took becomes that of the recreation; the next failure finds the window as it should."""
    crew = await started(rig, racks(ESCALATION="InPlace=2,window=3600"))
    await fail(rig, crew, FIRST, 1)
    await move(rig, crew, FIRST, 1, "a1")
    uses = (await crew.status())[wire.ESCALATION_USES]
    assert [(use["escalationStep"], use["recreation"]) for use in uses] == [("InPlace", True), ("LeaveDomain", True)]
    await renewed(rig, crew, "c")
    await rig.run_epoch(crew, 2)
    await fail(rig, crew, OTHER, 1)
    await move(rig, crew, OTHER, 1, "b3")
    await rig.run_epoch(crew, 3)
    assert (await crew.epochs(), budget(rig)) == ((3, 2), 7)
    await fail(rig, crew, OTHER, 2)
    await rig.run_epoch(crew, 4)
    assert (await crew.condition("Failed"))["reason"] == "RestartLimitExceeded"


async def test_a_running_group_is_left_alone(rig: Rig) -> None:
    """Who hung is known when all have announced, as the epoch begins: the Job is recreated in the next restart only."""
    crew = await started(rig, racks())
    before = await crew.job_uids()
    for epoch, index in ((2, 1), (3, 2)):
        told = failure_text(WorkerFailure(epoch - 1, None, rig.clock.wall_s(), stalled_s=9))
        await rig.tell(crew, crew.pods[OTHER, index], told, 0.2)
        for pod in crew.pods.values():
            step = 29 if pod == crew.pods[FIRST, index] else 30
            await crew.annotate(pod, wire.epoch_annotations(epoch) | {wire.PHASES: f"v1,view=9,quiet=9000,step={step}"})
        await rig.run_epoch(crew, epoch)
    assert await restarts_of(crew) == ([0, 0], [0, 0])
    await fail(rig, crew, FIRST, 0)
    assert await restarts_of(crew) == ([1, 0], [1, 0])
    assert (await crew.job_uids())[OTHER] == before[OTHER]
    await renewed(rig, crew, "c")
    await rig.run_epoch(crew, 4)
    assert (await crew.epochs(), budget(rig)) == ((4, 3), 6)


async def test_a_leader_that_crashed_after_the_write_is_followed_up() -> None:
    """The status counts the recreation, nothing is deleted yet: the next controller deletes, and counts nothing."""
    rig = Rig()
    async with rig.running():
        crew = await started(rig, racks())
        before = await crew.job_uids()
        rig.fault = lambda request: (
            refusal(503, "ServiceUnavailable") if request.method == "DELETE" and "/jobs/" in request.path else None
        )
        await fail(rig, crew, FIRST, 1)
        await move(rig, crew, FIRST, 1, "a1")
    rig.fault = lambda _: None
    assert await restarts_of(crew) == ([1, 0], [1, 0])
    async with rig.running(rig.controller()):
        await rig.settle(20.0)
        await renewed(rig, crew, "c")
        await rig.run_epoch(crew, 2)
        assert await restarts_of(crew) == ([1, 0], [1, 0])
        assert (await crew.job_uids())[OTHER] == before[OTHER]
        assert (await crew.epochs(), budget(rig, 1)) == ((2, 1), 8)
