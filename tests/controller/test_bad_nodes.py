"""Bad nodes with the whole controller: verdicts, the gate of new Pods, what a new leader knows, and what it costs."""

from __future__ import annotations

import pytest

from inplace.common.kube.resources import PODS, KubeObject
from inplace.common.wire import names as wire
from tests.controller.crew import Crew
from tests.controller.manifests import changed, jobset, replicated_job
from tests.controller.rig import Rig

pytestmark = pytest.mark.virtual_time

PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def annotated(text: str = "2", name: str = "train") -> KubeObject:
    """Return a JobSet of three Pods that avoids bad nodes."""
    annotations = {wire.NODES: text, wire.FAILURES: "backoff=0"}
    return jobset(name, jobs=[replicated_job(replicas=1, pods=3)], restarts_max=100, annotations=annotations)


async def started(rig: Rig, manifest: KubeObject) -> Crew:
    """Bring a group to epoch 1; the Pod of index i is on node ni."""
    crew = await rig.with_pods(manifest)
    await rig.settle()
    for (_, index), pod in crew.pods.items():
        await crew.run_on(pod, f"n{index}")
    await rig.run_epoch(crew, 1)
    return crew


async def fail(rig: Rig, crew: Crew, index: int, to: str = "spare") -> None:
    """Let one worker die, and bring the group to its next epoch; a Pod that is ended for it gets another node."""
    synced = (await crew.epochs())[0]
    failed = crew.pod_at(index)
    await rig.set_worker(crew, failed, 0.2, run=synced, exit_code=1)
    assert await crew.epochs() == (synced, synced)
    if await rig.is_ending(failed):
        await end(rig, crew, index)
        await crew.run_on(crew.pod_at(index), to)
        await rig.settle()
    await rig.run_epoch(crew, synced + 1)


async def end(rig: Rig, crew: Crew, index: int) -> KubeObject:
    """Let kubelet end a Pod, and its Job replace it; return the spec of the replacement."""
    await crew.set_phase(crew.pod_at(index), "Failed")
    await crew.replace(f"{crew.name}-workers-0", index)
    await rig.settle()
    return await spec_of(rig, crew.pod_at(index))


async def replaced(rig: Rig, crew: Crew, index: int) -> KubeObject:
    """Remove a Pod, make its replacement, and return its spec once the controller has seen it."""
    await crew.remove(crew.pod_at(index))
    await crew.make_pods()
    await rig.settle()
    return await spec_of(rig, crew.pod_at(index))


async def spec_of(rig: Rig, pod: str) -> KubeObject:
    """Return the spec of a Pod."""
    spec: KubeObject = (await rig.admin.get(PODS, "default", pod))["spec"]
    return spec


def shunned(spec: KubeObject) -> list[str]:
    """Return the nodes that a Pod prefers to avoid; nothing may hold it back."""
    assert not spec.get("schedulingGates")
    terms = spec.get("affinity", {}).get("nodeAffinity", {}).get(PREFERRED) or []
    return [field["values"][0] for term in terms for field in term["preference"]["matchFields"]]


async def nodes_told(crew: Crew) -> list[str]:
    """Return the nodes that the status says are avoided."""
    return [entry["node"] for entry in (await crew.status()).get(wire.NODE_FAILURES) or () if "avoidedSince" in entry]


async def test_without_the_annotation_nothing_changes() -> None:
    """No gate, no status field, no request more; an annotation that cannot be read is the same, and said."""
    requests = {}
    for name, text in (("plain", None), ("unread", "failures=2,within=1")):
        rig = Rig()
        async with rig.running():
            manifest = annotated(text or "", name)
            if text is None:
                manifest = jobset(name, jobs=[replicated_job(replicas=1, pods=3)], restarts_max=100)
            crew = await started(rig, manifest)
            await fail(rig, crew, 0)
            await fail(rig, crew, 0)
            assert not (await spec_of(rig, crew.pod_at(0))).get("schedulingGates")
            assert wire.NODE_FAILURES not in await crew.status()
            requests[name] = sum(
                f"/pods/{pod}" in request.path for request in rig.requests for pod in crew.pods.values()
            )
            assert bool(await crew.find_condition("SpecProblem")) is (text is not None)
    assert requests == {"plain": 0, "unread": 0}


async def test_a_pod_that_may_run_on_one_node_alone_restarts_there(rig: Rig) -> None:
    """As Kueue's Topology Aware Scheduling pins it: no Pod is lost for nothing, the verdict stands, and it is said."""
    selector = "spec.replicatedJobs.0.template.spec.template.spec.nodeSelector"
    crew = await started(rig, changed(annotated("1"), selector, {"kubernetes.io/hostname": "n0"}))
    kept = crew.pod_at(0)
    for _ in range(2):
        await fail(rig, crew, 0)
        assert crew.pod_at(0) == kept
        assert not await rig.is_ending(kept)
        assert await nodes_told(crew) == ["n0"]
        (told,) = await rig.events("PodStaysOnNode")
        assert f"pod {kept} may run on node n0 alone" in told["note"]
    await replaced(rig, crew, 0)
    await crew.run_on(crew.pod_at(0), "n0")
    await rig.settle()
    assert await nodes_told(crew) == ["n0"], "the scheduler had no choice"
    assert await rig.events("NodeVerdictTakenBack") == []


async def test_a_node_that_fails_its_worker_again_is_left(rig: Rig) -> None:
    """The second first failure is the verdict: the Pod is ended, and the group waits for its replacement elsewhere."""
    crew = await started(rig, annotated())
    assert [shunned(await spec_of(rig, pod)) for pod in crew.pods.values()] == [[], [], []]
    assert sum("/pods/" in request.path and request.method != "GET" for request in rig.requests) == 3
    await fail(rig, crew, 0)
    await fail(rig, crew, 1)
    assert await nodes_told(crew) == []
    bad = crew.pod_at(0)
    await rig.set_worker(crew, bad, run=3, exit_code=1)
    assert await crew.epochs() == (3, 3)
    assert await nodes_told(crew) == ["n0"]
    (event,) = await rig.events("NodeAvoided")
    assert "node n0: 2 first failures within 3600 s, the last: pod train-workers-0-0-" in event["note"]
    assert (await spec_of(rig, bad))["activeDeadlineSeconds"] == 1
    assert len(await rig.events("PodLeavesNode")) == 1
    await rig.meet(crew, 4)
    assert await crew.epochs() == (3, 3), "it must not sync with a Pod that is about to end"
    assert shunned(await end(rig, crew, 0)) == ["n0"]
    await rig.meet(crew, 4)
    assert await crew.epochs() == (4, 3)


async def test_a_new_leader_knows_what_the_old_one_counted(rig: Rig) -> None:
    """Half of a verdict is in the status; and a failed check is not counted again."""
    crew = await started(rig, annotated())
    await fail(rig, crew, 0)
    await crew.fail_check(crew.pod_at(2))
    await rig.settle()
    assert await nodes_told(crew) == ["n2"]
    before = await crew.status()
    await rig.change_controller()
    await rig.settle(60)
    assert (await crew.status())[wire.NODE_FAILURES] == before[wire.NODE_FAILURES]
    await crew.replace("train-workers-0", 2)
    await rig.settle()
    assert shunned(await spec_of(rig, crew.pod_at(2))) == ["n2"]


async def test_a_failed_check_is_a_verdict(rig: Rig) -> None:
    """At the first start, too; the reason is told, and one status write tells it."""
    crew = await rig.with_pods(annotated())
    await rig.settle()
    await crew.run_on(crew.pod_at(1), "n1")
    await crew.fail_check(crew.pod_at(1))
    await rig.settle()
    assert await nodes_told(crew) == ["n1"]
    (event,) = await rig.events("NodeAvoided")
    assert "a failed check: pod train-workers-0-1-" in event["note"]
    assert "GPU 3" in event["note"]
    assert shunned(await replaced(rig, crew, 1)) == ["n1"]


async def test_a_program_that_exits_with_that_code_is_no_failed_check(rig: Rig) -> None:
    """Its message does not say so."""
    crew = await started(rig, annotated())
    await crew.fail_check(crew.pod_at(1), "mine")
    await rig.settle()
    assert await nodes_told(crew) == []


async def test_without_a_better_node_the_verdict_is_taken_back(rig: Rig) -> None:
    """The scheduler brings the replacement there again: that is said, and the node's failures are forgotten."""
    crew = await started(rig, annotated("1"))
    await fail(rig, crew, 0, to="n0")
    assert shunned(await spec_of(rig, crew.pod_at(0))) == ["n0"]
    assert await nodes_told(crew) == []
    assert len(await rig.events("NodeVerdictTakenBack")) == 1
    assert shunned(await replaced(rig, crew, 0)) == []
    await crew.run_on(crew.pod_at(0), "n0")
    await rig.settle()
    assert len(await rig.events("NodeVerdictTakenBack")) == 1
    await rig.run_epoch(crew, (await crew.epochs())[0] + 1)
    await fail(rig, crew, 0)
    assert await nodes_told(crew) == ["n0"]
    assert len(await rig.events("NodeVerdictTakenBack")) == 1


async def test_a_verdict_ends(rig: Rig) -> None:
    """After its window nobody avoids the node; nothing need be written for that."""
    crew = await started(rig, annotated("failures=1,within=60"))
    await fail(rig, crew, 0)
    await rig.settle(50)
    assert shunned(await replaced(rig, crew, 0)) == ["n0"]
    await rig.settle(20)
    assert shunned(await replaced(rig, crew, 0)) == []


async def test_all_nodes_are_bad(rig: Rig) -> None:
    """One of three is avoided, the one that failed last; the Event says which is avoided no longer."""
    crew = await started(rig, annotated("1"))
    for index in (0, 1, 2):
        await fail(rig, crew, index, to=f"spare-{index}")
    assert await nodes_told(crew) == ["n0", "n1", "n2"]
    assert any("and node n1 no longer: at most 1 of 3 nodes" in e["note"] for e in await rig.events("NodeAvoided"))
    assert shunned(await replaced(rig, crew, 1)) == ["n2"]


async def test_two_jobsets_judge_for_themselves(rig: Rig) -> None:
    """What one blames does not concern the other, on the same nodes."""
    one, other = (
        await started(rig, annotated("2", "one")),
        await started(rig, annotated("2", "other")),
    )
    await fail(rig, one, 0)
    await fail(rig, other, 0)
    await fail(rig, one, 0)
    assert (await nodes_told(one), await nodes_told(other)) == (["n0"], [])
    assert shunned(await replaced(rig, other, 0)) == []


@pytest.mark.parametrize("value", [None, "nonsense"])
async def test_an_annotation_that_goes_lets_pods_go(rig: Rig, value: str | None) -> None:
    """Their templates have the gate for ever: it is lifted, and nothing is avoided."""
    crew = await started(rig, annotated("1"))
    await fail(rig, crew, 0)
    await rig.annotate({wire.NODES: value})
    assert shunned(await replaced(rig, crew, 0)) == []


async def test_what_is_asked_for_by_a_person_blames_no_node(rig: Rig) -> None:
    """Nor does a Pod that is deleted."""
    crew = await started(rig, annotated("1"))
    await rig.annotate({wire.RESTART_REQUESTED: "a"})
    assert await crew.epochs() == (1, 1)
    await rig.run_epoch(crew, 2)
    assert shunned(await replaced(rig, crew, 1)) == []
    await crew.run_on(crew.pod_at(1), "n1")
    await rig.run_epoch(crew, 3)
    status = await crew.status()
    assert status[wire.LAST_GROUP_RESTART]["trigger"] == "pod_lost"
    assert wire.NODE_FAILURES not in status


async def test_both_gates_of_ours(rig: Rig) -> None:
    """Exclusive placement follows when the other gate is lifted."""
    manifest = annotated()
    manifest["metadata"]["annotations"][wire.EXCLUSIVE_TOPOLOGY] = "rack"
    crew = await rig.with_pods(manifest)
    await rig.settle()
    assert not (await spec_of(rig, crew.pod_at(0))).get("schedulingGates")
    assert (await spec_of(rig, crew.pod_at(1)))["schedulingGates"] == [{"name": wire.PLACEMENT_GATE}]
