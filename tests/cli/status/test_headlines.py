"""Never is "it trains" said of what does not train, and what trains is not called broken."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import pytest

from inplace.cli.group.pod_facts import PodFact
from inplace.cli.group.pod_table import decode_table
from inplace.cli.group.read import NAME, Controller
from inplace.cli.group.state import GroupState, group_state, state_of_status
from inplace.cli.status.document import list_data
from inplace.cli.status.explain import read_facts
from inplace.cli.status.explanation import Facts, explain
from inplace.cli.status.status import run_status
from inplace.common.jobset.headline import NO_ANSWER, UNEQUIPPED, GroupPhase, Pulse
from inplace.common.kube.http.request import Request, Response
from inplace.common.kube.resources import LEASES, KubeObject
from inplace.common.kube.timestamps import micro_time
from inplace.common.wire import names as wire
from inplace.common.wire.worker_failure import WorkerFailure, failure_text
from inplace.simulator.cluster.cluster import Cluster
from tests.cli.facts import NOW, RUNS, explanation_of, jobset, pod, table, text_of
from tests.cli.injecting import example_of
from tests.cli.scenes import Spy, explained, jobset_of, seen, training, until

DONE = {"terminated": {"exitCode": 0, "reason": "Completed"}}
BAD = {"terminated": {"exitCode": 2, "reason": "Error"}}
NOWHERE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}
RUNNING = wire.status_of_epochs(2, 1)


def worker(index: int, *, epoch: int = 2, agent: bool = True, helper: KubeObject | None = None, **more: Any) -> PodFact:
    """Return a Pod of the guarded example."""
    agents = [{"name": "agent", "state": RUNS, "started": True, "ready": agent}]
    state, metadata = more.pop("state", RUNS), more.pop("metadata", {})
    workers = [{"name": "worker", "state": state, "ready": True}]
    workers += [{"name": "metrics", "state": helper}] if helper is not None else []
    status = {"initContainerStatuses": agents, "containerStatuses": workers} | more
    return pod(index, epoch, job="workers", status=status, **metadata)


def guarded(*pods: PodFact, size: int = 0, status: KubeObject | None = None, **metadata: Any) -> GroupState:
    """Return the guarded example at epoch 2 with these Pods."""
    raw = deepcopy(jobset_of(example_of(size or len(pods))))
    raw["metadata"] |= {"uid": "u", "resourceVersion": "1", "namespace": "default"} | metadata
    return group_state(raw | {"status": status or RUNNING}, pods)


def test_a_jobset_that_was_annotated_while_it_ran() -> None:
    """Its Pods have no agent and are ready: no barrier is stuck, and the list, which reads no Pods, says the same."""
    plain = {"containers": [{"name": "worker", "image": "i:1", "command": ["python3", "train.py"]}]}
    status = {"containerStatuses": [{"name": "worker", "state": RUNS, "ready": True}], "phase": "Running"}
    pods = [pod(index, job="workers", spec=plain, status=status) for index in range(2)]
    ready = [{"name": "workers", "ready": 1, "active": 1}]
    raw = deepcopy(jobset_of(example_of(2)))
    raw["metadata"] |= {"uid": "u", "resourceVersion": "1", "namespace": "default"}
    raw["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"] = plain
    state = group_state(raw | {"status": wire.status_of_epochs(0, 0) | {"replicatedJobsStatus": ready}}, pods)
    assert (state.phase, state.headline().text) == (GroupPhase.OTHER, UNEQUIPPED)
    assert "the next failure recreates its Pods" in text_of(explanation_of(state, pods))
    assert state.jobset is not None
    assert state_of_status(state.jobset.raw).phase is GroupPhase.OTHER


COMPLETED = {
    "its Pod": worker(1, phase="Succeeded", state=DONE, agent=False),
    "its worker beside a helper": worker(1, state=DONE, helper=RUNS),
}


@pytest.mark.parametrize("other", COMPLETED.values(), ids=COMPLETED)
def test_one_rank_completed_and_the_others_run(other: PodFact) -> None:
    """A pipe hid a failure: the line names the Pod and not that it trains; the advice has the command for its log."""
    pods = [worker(0), other, worker(2)]
    state = guarded(*pods)
    found = explanation_of(state, pods)
    assert (state.phase, found.headline) == (
        GroupPhase.DEGRADED,
        "1 of its 3 Pods completed while others run: train-workers-0-1",
    )
    (cause,) = found.causes
    assert (cause.kind, cause.pods) == ("CompletedEarly", ("train-workers-0-1",))
    assert "kubectl logs train-workers-0-1 --all-containers -n default" in cause.advice
    assert "inplace restart train -n default" in cause.advice
    assert "trains" not in text_of(found)


def test_all_ranks_completed() -> None:
    """At the end nobody is blamed."""
    pods = [worker(index, phase="Succeeded", state=DONE, agent=False) for index in range(2)]
    found = explanation_of(guarded(*pods), pods)
    assert (found.headline, found.causes) == ("it ends: the workers of all 2 Pods completed", ())


def test_a_job_that_completed_shows_in_the_list() -> None:
    """The list reads no Pod, and says Degraded where one Job completed and another one runs."""
    counters = [{"name": "big-job", "ready": 1, "succeeded": 1}]
    raw = jobset((2, 3), status=RUNNING | {"replicatedJobsStatus": counters})
    assert list_data(raw)["phase"] == "Degraded"
    counters[0] |= {"ready": 2, "succeeded": 0}
    assert list_data(raw)["phase"] == "Running"


def test_an_initializer_that_completed_is_not_missed() -> None:
    """Others waited for its end: it has left the group."""
    raw = jobset(1, 2, status=RUNNING | {"replicatedJobsStatus": [{"name": "big-job", "succeeded": 1}]})
    raw["spec"]["replicatedJobs"][1]["dependsOn"] = [{"name": "big-job", "status": "Complete"}]
    pods = [pod(0, 1, status={"phase": "Succeeded"}), *(pod(index, 2, job="big-job-1") for index in range(2))]
    state = group_state(raw, pods)
    assert (state.phase, state.expected) == (GroupPhase.RUNNING, 2)
    assert list_data(raw)["phase"] == "Running"


def test_a_watchdog_that_sees_no_step() -> None:
    """All ranks sit in `initialize()`: explain says that nobody reports steps, and how to see where the ranks are."""
    pods = [worker(0), worker(1)]
    text = text_of(explanation_of(guarded(*pods, annotations={wire.STALL: "60"}), pods))
    assert "it runs; no rank reports steps: all 2 Pods are at epoch 2" in text
    assert "inplace stacks train -n default" in text
    assert "Nothing keeps it from training" not in text


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        (WorkerFailure(2, 139, 1.0), "the workers of 1 of its 2 Pods failed: train-workers-0-1; "),
        (WorkerFailure(2, None, 1.0, stalled_s=60), "it hangs: 1 of its 2 Pods told that a rank makes no step: "),
    ],
    ids=["it died", "it hangs"],
)
def test_a_failure_that_the_controller_has_not_answered(failure: WorkerFailure, words: str) -> None:
    """The agent told, and the epoch still runs: the next step is the controller's, and explain names it."""
    told = {wire.WORKER_FAILED: failure_text(failure)} | wire.epoch_annotations(2)
    pods = [worker(0), worker(1, metadata={"annotations": told})]
    state = guarded(*pods)
    found = explanation_of(state, pods)
    assert state.phase is GroupPhase.RESTARTING
    assert found.headline.startswith(words)
    (cause,) = found.causes
    assert cause.kind == "NotRestartedYet"
    assert "kubectl get pods -A -l app.kubernetes.io/name=inplace-controller" in cause.advice
    old = [
        worker(0),
        worker(1, metadata={"annotations": {wire.WORKER_FAILED: told[wire.WORKER_FAILED]} | wire.epoch_annotations(3)}),
    ]
    assert guarded(*old, status=wire.status_of_epochs(3, 2)).phase is GroupPhase.DEGRADED, "Pod 0 is late; 1 runs again"


def test_a_lost_pod_without_room() -> None:
    """The survivors wait: the line names the Pod and why; the list has both once the controller has told."""
    pods = [worker(0), worker(1), worker(2, epoch=0, phase="Pending", conditions=[NOWHERE])]
    pods[2] = pod(2, job="workers", spec={"nodeName": None}, status={"phase": "Pending", "conditions": [NOWHERE]})
    found = explanation_of(guarded(*pods), pods)
    assert found.headline == (
        "it waits: epoch 2 runs without 1 of its 3 Pods: train-workers-0-2 (Pending: unschedulable: no room)"
    )
    words = "2/3 at epoch 2; waiting for train-w-0-2 (Pending: no room)"
    told = [{"type": "BarrierWaiting", "status": "True", "message": words}]
    row = list_data(jobset(3, status=RUNNING | {"conditions": told}))
    assert (row["phase"], row["waitsFor"]) == ("Degraded", words)


def test_a_pod_that_nobody_told_is_not_blamed() -> None:
    """One Pod went on, and the epoch of the other is not over: that write is the controller's, not its agent's."""
    pods = [worker(0), worker(1, epoch=3)]
    (cause,) = explanation_of(guarded(*pods), pods).causes
    assert cause.text == "1 Pod: the controller has not ended its epoch yet: at epoch 2"
    assert "app.kubernetes.io/name=inplace-controller" in cause.advice


STOPPED = Controller(Pulse.STOPPED, f"{NO_ANSWER}: Pod c-1 renewed the Lease {NAME} 40 s ago", "c-1")


@pytest.mark.parametrize(
    ("pods", "status"),
    [
        ([worker(0, epoch=3), worker(1, epoch=3)], RUNNING),
        ([worker(0), worker(1, epoch=3)], RUNNING),
        ([worker(0), worker(1)], wire.status_of_epochs(2, 2)),
        ([worker(0), worker(1)], RUNNING),
    ],
    ids=["all wait at the barrier", "one went on", "agents have not followed", "it runs"],
)
def test_a_controller_that_has_stopped(pods: list[PodFact], status: KubeObject) -> None:
    """The first cause is the controller, by the name of its Pod, and no agent is blamed for what nobody writes."""
    state = guarded(*pods, status=status)
    found = explain(Facts(state, pods, controller=STOPPED), now_s=0.0)
    assert NO_ANSWER in found.headline
    assert [cause.kind for cause in found.causes] == ["NoController"]
    assert "c-1 renewed the Lease" in found.causes[0].text
    assert "kubectl logs c-1 -n inplace-system --tail 50" in found.causes[0].advice
    assert "Nothing keeps" not in text_of(found)


async def hold_lease(cluster: Cluster, holder: str = "inplace-controller-7d9c5-x2x4q_1a2b3c4d") -> None:
    """Let a controller hold the Lease now."""
    client = cluster.client("admin")
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": micro_time(cluster.clock)}
    lease = {"metadata": {"name": LEASE[1], "namespace": LEASE[0]}, "spec": spec}
    await client.create(LEASES, LEASE[0], {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"} | lease)


LEASE = NAME.split("/")


@pytest.mark.virtual_time
async def test_the_lease_is_read() -> None:
    """Explain reads the Lease once: it beats for 10 s after its renewal, then the controller's Pod is named."""
    async with training(2) as cluster:
        await hold_lease(cluster)
        assert NO_ANSWER not in (await explained(cluster)).headline
        await cluster.clock.sleep(40.0)
        found = await explained(cluster)
        assert NO_ANSWER in found.headline
        assert found.causes[0].text.startswith(
            f"{NO_ANSWER}: Pod inplace-controller-7d9c5-x2x4q renewed the Lease {NAME} 4"
        )


@pytest.mark.virtual_time
async def test_a_lease_that_may_not_be_read_is_said() -> None:
    """Without the right explain says that it does not know whether the controller works, and goes on."""
    async with training(2) as cluster:
        facts = await read_facts(Spy(cluster.server, "/leases/").connection(), "train")
        text = text_of(explain(facts, now_s=cluster.clock.wall_s()))
        assert f"not read: the controller's Lease {NAME}, so it is not known whether the controller works: 403" in text
        assert NO_ANSWER not in text


@pytest.mark.virtual_time
@pytest.mark.parametrize(("lost", "third"), [(False, "/log?"), (True, "/leases/")], ids=["all run", "a Pod is lost"])
async def test_status_reads_one_object_more(capsys: pytest.CaptureFixture[str], lost: bool, third: str) -> None:
    """The log of one Pod where all run, the Lease where something does not run."""
    async with training(2, group=example_of(2)) as cluster:
        if lost:
            cluster.lose_node(cluster.pods()[0]["spec"]["nodeName"])
            await until(cluster, lambda: any(one["status"].get("reason") == "NodeLost" for one in cluster.pods()))
        spy = Spy(cluster.server)
        await run_status.__wrapped__(spy.connection(), "train", output="json", watch=False)  # type: ignore[attr-defined]
        paths = [request.path for request in spy.asked]
        assert len(paths) == 3
        assert third in paths[-1]
        line = json.loads(capsys.readouterr().out)["headline"]
        assert ("no rank reports steps" in line) is not lost


HELPER = {"name": "metrics", "image": "x", "command": ["sh", "-c", "sleep 6; exit 2"]}


@pytest.mark.parametrize(
    "end", [BAD, DONE, {"waiting": {"reason": "CrashLoopBackOff"}}], ids=["failed", "done", "loops"]
)
def test_a_helper_that_ended_is_no_worker(end: KubeObject) -> None:
    """An exporter beside the worker ended: the workers work, and nobody's guard is accused."""
    pods = [worker(0, helper=end), worker(1)]
    raw = deepcopy(jobset_of(example_of(2)))
    raw["metadata"] |= {"uid": "u", "resourceVersion": "1", "namespace": "default"}
    template = raw["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    template["containers"].append(HELPER)
    state = group_state(raw | {"status": RUNNING}, pods)
    assert (state.phase, state.scopes[0].working, list(state.scopes[0].idle)) == (GroupPhase.RUNNING, 2, [])
    assert explanation_of(state, pods).causes == ()


@pytest.mark.parametrize("printed", ["Error", "NotReady", "OOMKilled"])
def test_a_helper_that_ended_in_a_large_group(printed: str) -> None:
    """Kubectl prints the helper's end as the Pod's; that other containers are ready says that the Pod runs."""
    rows = [("train-big-job-0-0-abcde", "2/3", printed, "n"), ("train-big-job-0-1-abcde", "3/3", "Running", "n")]
    state = group_state(jobset(2, status=wire.status_of_epochs(1, 0)), decode_table(table(*rows), "train", 1).pods)
    assert (state.phase, state.scopes[0].working) == (GroupPhase.RUNNING, 1)
    assert list(state.scopes[0].idle) == ["train-big-job-0-0-abcde"], "explain reads it whole"


def test_a_crash_loop_that_is_over_is_not_told() -> None:
    """An epoch that ran for 60 s is progress: 60 s after the cure nobody says that the workers fail."""
    loop = {"failures": 3, "since": NOW, "epoch": 2, "syncedAt": NOW}
    pods = [worker(0), worker(1)]
    state = guarded(*pods, status=RUNNING | {wire.CRASH_LOOP: loop})
    at_s = 1_767_225_600.0  # NOW
    assert [one.kind for one in explanation_of(state, pods, now_s=at_s + 59.0).causes] == ["CrashLoop"]
    assert explanation_of(state, pods, now_s=at_s + 60.0).causes == ()


def test_a_pause_after_failures_is_not_the_controllers_fault() -> None:
    """All Pods are there, and the next epoch waits on purpose: the line says so and blames no controller."""
    loop = {"failures": 3, "since": NOW, "epoch": 3, "until": "2026-01-01T00:05:00Z"}
    pods = [worker(0, epoch=3), worker(1, epoch=3)]
    found = explanation_of(guarded(*pods, status=wire.status_of_epochs(2, 2) | {wire.CRASH_LOOP: loop}), pods)
    assert found.headline.endswith(
        "2 of 2 Pods are at the barrier of epoch 3; the next epoch waits after failures without progress"
    )
    assert "controller" not in found.headline


def test_a_suspended_jobset_tries_nothing() -> None:
    """A crash loop does not go on while a JobSet is suspended; a queue resumes it, or a person does."""
    loop = {"failures": 3, "since": NOW, "epoch": 3, "until": "2026-01-01T00:05:00Z"}
    raw = jobset(2, status=wire.status_of_epochs(2, 2) | {wire.CRASH_LOOP: loop}, suspend=True)
    found = explanation_of(group_state(raw, []), now_s=1_767_225_600.0)
    assert [one.kind for one in found.causes] == ["Suspended"]
    assert found.headline == "it is suspended"
    raw["metadata"]["labels"] = {wire.QUEUE_NAME: "gpus"}
    assert explanation_of(group_state(raw, [])).headline == "it waits in a queue, which resumes it"


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_finalizer_that_holds_a_pod_is_named(phase: str) -> None:
    """The Pod has ended, so no node is to blame: explain names the finalizer, and who may remove it."""
    held = {"deletionTimestamp": NOW, "finalizers": ["batch.kubernetes.io/job-tracking", "example.com/hold"]}
    pods = [worker(0, phase=phase, state=DONE, metadata=held), worker(1)]
    found = explanation_of(guarded(*pods, status=wire.status_of_epochs(2, 2)), pods)
    held_by = next(one for one in found.causes if one.kind == "Held")
    assert held_by.text == "1 Pod: it has ended, and a finalizer keeps it: example.com/hold"
    assert "kubectl edit pod train-workers-0-0 -n default" in held_by.advice
    assert not any("delete node" in one.advice for one in found.causes)


@pytest.mark.virtual_time
async def test_the_list_has_a_lost_pod_without_room() -> None:
    """20 s after no node had room the list says Degraded and whom the group waits for, with the scheduler's reason."""
    async with training(3, nodes=3) as cluster:
        cluster.lose_node(cluster.pods()[0]["spec"]["nodeName"])
        await until(cluster, lambda: any("Unschedulable" in str(one.get("status")) for one in cluster.pods()))
        assert list_data(cluster.jobset("train"))["phase"] in ("Running", "Degraded")
        await cluster.clock.sleep(20.0)
        row = list_data(cluster.jobset("train"))
        assert row["phase"] == "Degraded"
        assert "2/3 at epoch 1; waiting for train-workers-0-" in (row["waitsFor"] or "")
        assert "(Pending: no node fits the Pod" in (row["waitsFor"] or "")
        assert (await seen(cluster)).phase is GroupPhase.DEGRADED


class AgentLog(Spy):
    """A way to the cluster on which each agent's log is one text."""

    def __init__(self, cluster: Cluster, *lines: str) -> None:
        super().__init__(cluster.server)
        self._log = "\n".join(lines).encode()

    async def request(self, request: Request, *, timeout_s: float) -> Response:
        """Answer."""
        if "/log?" in request.path:
            self.asked.append(request)
            return Response(200, {"content-type": "text/plain"}, self._log)
        return await super().request(request, timeout_s=timeout_s)


LIFTED = '{{"timestamp": "t", "level": "info", "event": "barrier_lifted", "epoch": {}, "wait_s": 0.1}}'
BEGUN = '{{"timestamp": "t", "level": "info", "event": "steps_begun", "epoch": {}}}'


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    ("lines", "begins", "is_unread"),
    [
        ([LIFTED.format(1), BEGUN.format(1)], "it trains: all 2 Pods are at epoch 1", False),
        ([LIFTED.format(1)], "it runs; no rank reports steps: ", False),
        ([LIFTED.format(2), BEGUN.format(2)], "it runs; no rank reports steps: ", True),
        (["a worker's own line"], "it runs; no rank reports steps: ", False),
    ],
    ids=["steps", "no steps", "another epoch's", "the begin is gone"],
)
async def test_steps_are_known_from_an_agents_log(lines: list[str], begins: str, is_unread: bool) -> None:
    """It trains if the log says so for this epoch; where the log's begin is gone, explain says so."""
    group = example_of(2)
    jobset_of(group)["metadata"]["annotations"] = {wire.STALL: "60"}
    async with training(2, group=group) as cluster:
        facts = await read_facts(AgentLog(cluster, *lines).connection(), "train")
        found = explain(facts, now_s=cluster.clock.wall_s())
        text = text_of(found)
        assert found.headline.startswith(begins)
        assert ("Nothing keeps it from training." in text) == begins.startswith("it trains")
        assert ("not read: the begin of epoch 1 in the log of Pod train-workers-0-0" in text) == is_unread
