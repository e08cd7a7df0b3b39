"""`inplace explain` names the cause: each way for a group to be in trouble, on the simulated cluster."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inplace.cli.connection import WHOLE_MAX
from inplace.cli.group.pod_table import decode_table
from inplace.cli.group.state import group_state
from inplace.cli.status.advice import failed_job
from inplace.cli.status.document import status_data
from inplace.cli.status.explain import explanation_lines, read_facts
from inplace.cli.status.explanation import explain
from inplace.cli.status.restart import request_restart
from inplace.common.jobset.furthest_behind import FurthestBehind
from inplace.common.jobset.goodput import Goodput, Run
from inplace.common.jobset.headline import GroupPhase
from inplace.common.kube.resources import JOBSETS, PODS, KubeObject
from inplace.common.protocol.last_progress import LastProgress
from inplace.common.wire import names as wire
from inplace.controller.api.object_events import Event
from inplace.simulator.cluster.cluster import Cluster
from tests.cli.facts import drawn, explanation_of, jobset, pod, table, text_of
from tests.cli.scenes import Spy, another, connection, explained, kill, seen, status, synced, training, until

pytestmark = pytest.mark.virtual_time


async def test_a_group_that_runs_has_no_cause() -> None:
    """For a group that runs, explain says that there is no cause, and not that it trains: nobody reports steps."""
    async with training() as cluster:
        explanation = await explained(cluster)
        assert explanation.causes == ()
        assert explanation.headline == "it runs; no rank reports steps: all 4 Pods are at epoch 1"
        assert "Nothing keeps it from training" not in text_of(explanation)


async def test_a_group_that_reports_no_steps_is_told_how_to() -> None:
    """A hang looks like training, so what does not show one is said before it costs a night."""
    async with training() as cluster:
        text = text_of(await explained(cluster))
        assert "No rank has reported a step in this epoch, so a hang may not be noticed." in text
        assert "A script reports its steps with inplace.progress(step)." in text


async def test_a_worker_crash_is_named() -> None:
    """After the restart explain names the Pod whose worker ended first, its container, exit code and the restart."""
    async with training() as cluster:
        victim = sorted(pod["metadata"]["name"] for pod in cluster.pods())[2]
        cluster.kill_worker("default", victim, supervised=True)
        await synced(cluster, 2)
        explanation = await explained(cluster)
        assert explanation.causes == ()
        text = text_of(explanation)
        assert f"container worker of Pod {victim} on node-" in text
        assert "killed by SIGKILL (137)" in text
        assert "1 of 10 restarts used" in text


async def test_who_was_silent_first_is_named() -> None:
    """With its step and its silence; in `inplace status -o json` as well."""
    silent = FurthestBehind(("train-a-0-1-x", "train-a-0-2-y"), 2, LastProgress(1199, 4.012))
    entry = {"epoch": 2, "trigger": "stalled", "startedAt": "2026-01-01T00:00:00Z", "syncedAt": "2026-01-01T00:00:05Z"}
    last = {wire.LAST_GROUP_RESTART: entry | {"firstSilent": silent.fields()}}
    state = group_state(jobset(2, status=wire.status_of_epochs(2, 1) | last), ())
    text = text_of(explanation_of(state))
    assert "2 pods were furthest behind, at step 1199: steps cannot tell which of them was silent first" in text
    assert "pod train-a-0-1-x was quiet longest, 4.0 s" in text
    assert "where its ranks were before the restart: inplace stacks train -n default --last" in text
    restart = status_data(state)["lastRestart"]
    assert restart is not None
    assert (restart["trigger"], restart["firstSilent"]) == ("stalled", silent.fields())


async def test_what_restarts_cost_is_said() -> None:
    """In one line of `explain` and `status`, in a moment of its own, and with the ratio for programs."""
    goodput = Goodput(2, 900.0, 40.0, 60.0, 20, Run(31, 50, 2.0, 1_767_225_610.0))
    past = {"epoch": 2, "startedAt": "2025-12-31T23:59:50Z", "costMs": 48_000, "lostSteps": 10}
    told = {"goodput": goodput.fields(), "restartHistory": [past]}
    state = group_state(jobset(2, status=wire.status_of_epochs(3, 2) | told | LAST), ())
    words = "effective training time 90.0 % over 2 restarts: 20 steps (40.0 s) made again, 60.0 s without a step"
    text = text_of(explanation_of(state))
    assert words in text
    assert "23:59:50  the restart to epoch 2 cost 48.0 s, in which 10 steps were made again" in text
    assert words in drawn(state)
    (scope,) = status_data(state)["scopes"]
    assert scope["goodput"] == goodput.fields() | {"ratio": 0.9}


LAST = {wire.LAST_GROUP_RESTART: {"epoch": 3, "trigger": "worker_exit", "startedAt": "2026-01-01T00:00:00Z"}}


def test_what_another_program_spoiled_in_a_failure_is_passed_over() -> None:
    """The rest of it is told; an exit code that is no number ended `status` in a traceback."""
    failure = {"pod": "train-0", "exitCode": "1", "reason": 7, "node": "n1"}
    last = LAST[wire.LAST_GROUP_RESTART] | {"firstFailure": failure}
    state = group_state(jobset(2, status=wire.status_of_epochs(3, 2) | {wire.LAST_GROUP_RESTART: last}), ())
    assert "Pod train-0 on n1" in text_of(explanation_of(state))


def test_the_verdict_says_who_why_what_was_done_and_what_helps() -> None:
    """In one line, and for programs by its parts; of a worker that only lost its peer it is the Pod that was behind."""
    echo = "RuntimeError: Connection closed by peer [10.0.0.7]:41234"
    failure = {"pod": "train-w-0-0-abcde", "node": "n0", "exitCode": 1, "lastLine": echo}
    silent = FurthestBehind(("train-w-0-1-fghij",), 1, LastProgress(7, 1.0)).fields()
    last = LAST[wire.LAST_GROUP_RESTART] | {"firstFailure": failure, "syncedAt": "2026-01-01T00:00:05Z"}
    state = group_state(jobset(2, status=wire.status_of_epochs(3, 2) | {wire.LAST_GROUP_RESTART: last}), ())
    restarted = "; it restarted to epoch 3: the failure policy says in place; look for the rank that failed first"
    assert f"verdict: collective, pod train-w-0-0-abcde on node n0: {echo}{restarted}" in text_of(explanation_of(state))
    last |= {"firstSilent": silent}
    state = group_state(jobset(2, status=wire.status_of_epochs(3, 2) | {wire.LAST_GROUP_RESTART: last}), ())
    restart = status_data(state)["lastRestart"]
    assert restart is not None
    verdict = restart["verdict"]
    assert verdict is not None
    assert (verdict["failureClass"], verdict["pod"]) == ("collective", "train-w-0-1-fghij")
    assert verdict["proof"] == f"Stalled: silent first, at step 7; pod train-w-0-0-abcde lost it: {echo}"
    assert "collective, pod train-w-0-1-fghij: Stalled: silent first, at step 7" in drawn(state)


def test_restarts_in_vain_are_the_first_cause() -> None:
    """With the condition's words, in explain and in status, until the JobSet has ended."""
    said = "restarts did not help: 3 failures in a row of class code from train-w-0-1 without a step of progress"
    told = {"conditions": [{"type": "RestartsInVain", "status": "True", "message": said}]}
    state = group_state(jobset(2, status=wire.status_of_epochs(3, 2) | told), ())
    cause = explanation_of(state).causes[0]
    assert (cause.kind, cause.text) == ("RestartsInVain", said)
    assert f"same in {wire.FAILURES}" in cause.advice
    assert f"RestartsInVain: {said}" in drawn(state, 200)


def test_the_step_of_a_restart_is_told() -> None:
    """In the moment at which it began, and for programs."""
    last = LAST[wire.LAST_GROUP_RESTART] | {"escalationStep": "ReplacePod"}
    state = group_state(jobset(2, status=wire.status_of_epochs(3, 2) | {wire.LAST_GROUP_RESTART: last}), ())
    text = text_of(explanation_of(state))
    assert "group restart to epoch 3 began: a worker ended, escalation step ReplacePod" in text
    restart = status_data(state)["lastRestart"]
    assert restart is not None
    assert restart["escalationStep"] == "ReplacePod"


def test_the_scope_of_a_restart_is_told() -> None:
    """In a divided JobSet the epoch's number alone says little."""
    last = {"epoch": 3, "scope": "a", "startedAt": "2026-01-01T00:00:00Z", "syncedAt": "2026-01-01T00:00:05Z"}
    state = group_state(jobset(2, status=wire.status_of_epochs(3, 2) | {wire.LAST_GROUP_RESTART: last}), ())
    text = text_of(explanation_of(state))
    assert "group restart of scope a to epoch 3 began" in text
    assert "every Pod of scope a was at epoch 3, 5.0 s after the restart began" in text
    assert "last restart of scope a: " in drawn(state)


def test_commands_name_the_namespace() -> None:
    """A command works as it stands, whatever namespace kubectl would take."""
    raw = jobset(2, status=wire.status_of_epochs(1, 0))
    raw["metadata"]["namespace"] = "team"
    rows = decode_table(table(("train-big-job-0-0-abcde", "0/1", "ContainerCreating", "node-1")), "train", 1).pods
    found = explanation_of(group_state(raw, rows), rows)
    assert len(found.causes) == 2
    assert all(cause.advice.endswith(" -n team") for cause in found.causes)


async def test_a_restart_by_hand_has_no_first_failure() -> None:
    """After a restart by hand explain names no first failure: the restart ended every worker."""
    async with training() as cluster:
        await request_restart(connection(cluster), "train")
        await synced(cluster, 2)
        text = text_of(await explained(cluster))
        assert "group restart to epoch 2 began: asked for by hand" in text
        assert "first failure" not in text


async def lost(cluster: Cluster) -> tuple[str, str]:
    """Lose the node of the first Pod; return the names of both once the Pod is known to be lost."""
    victim = cluster.pods()[0]
    cluster.lose_node(victim["spec"]["nodeName"])
    await until(cluster, lambda: any(pod["status"].get("reason") == "NodeLost" for pod in cluster.pods()))
    return victim["metadata"]["name"], victim["spec"]["nodeName"]


async def test_a_lost_node_is_named_while_the_group_waits() -> None:
    """`explain` names the Pod and its node, says that the node is not ready, and that it must be deleted."""
    async with training() as cluster:
        victim, node = await lost(cluster)
        explanation = await explained(cluster)
        assert (await seen(cluster)).phase in (GroupPhase.DEGRADED, GroupPhase.RESTARTING)
        assert [cause.kind for cause in explanation.causes] == ["NodeLost"]
        assert explanation.causes[0].pods == (victim,)
        text = text_of(explanation)
        assert f"node {node} is not ready" in text
        assert f"kubectl delete node {node}" in text


async def test_an_unschedulable_pod_is_named() -> None:
    """When no node fits the replacement of a lost Pod, explain gives the scheduler's message and the cure."""
    async with training() as cluster:
        await lost(cluster)
        await until(cluster, lambda: any("Unschedulable" in str(pod.get("status")) for pod in cluster.pods()))
        explanation = await explained(cluster)
        (cause,) = explanation.causes
        assert cause.kind == "Unschedulable"
        assert "nodes are available" in cause.text
        assert "kubectl describe pod train-workers-0-" in cause.advice
        assert "3 of 4 Pods" in explanation.headline or "without 1 of its 4 Pods" in explanation.headline


async def test_reaching_max_restarts_is_named() -> None:
    """`explain` names the allowed number of restarts and the last failure."""
    async with training(maxRestarts=1) as cluster:
        name = kill(cluster)
        await synced(cluster, 2)
        kill(cluster)
        await until(cluster, lambda: status(cluster).get("terminalState") == "Failed")
        explanation = await explained(cluster)
        (cause,) = explanation.causes
        assert cause.kind == "ReachedMaxRestarts"
        assert "maxRestarts is 1, and one more" in cause.text
        assert "its Pod is being deleted: read its log now: inplace logs" in cause.advice
        await until(cluster, lambda: not cluster.pods())
        (cause,) = (await explained(cluster)).causes
        assert f"Pod {name} is gone with its log" in cause.advice
        assert "kubectl" not in cause.advice
        assert explanation.headline == "it failed"


async def test_evictions_are_not_counted_and_nobody_is_told_to_mend_the_workers() -> None:
    """Three evictions one by one under maxRestarts 1 leave a group that runs; Pods that are deleted count."""
    async with training(maxRestarts=1) as cluster:
        for epoch in (2, 3, 4):
            name = str(cluster.pods()[0]["metadata"]["name"])
            body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
            await cluster.client("user").raw("POST", PODS.path("default", name, subresource="eviction"), body=body)
            await synced(cluster, epoch)
        explanation = await explained(cluster)
        told = str(explanation_lines(explanation))
        assert "a Pod was evicted (not counted)" in told
        assert "correct the cause" not in told
        await cluster.client("user").delete(PODS, "default", str(cluster.pods()[0]["metadata"]["name"]))
        await synced(cluster, 5)
        await cluster.client("user").delete(PODS, "default", str(cluster.pods()[0]["metadata"]["name"]))
        await until(cluster, lambda: status(cluster).get("terminalState") == "Failed")
        (cause,) = (await explained(cluster)).causes
        assert cause.kind == "ReachedMaxRestarts"
        assert "find out what deletes its Pods" in cause.advice


async def test_a_manifest_that_cannot_be_followed_is_named() -> None:
    """When admission accepted a bad manifest, explain gives the condition: the mistake, its place and its cure."""
    async with training(1) as cluster:
        await cluster.apply([another(annotations={wire.BARRIER: "soon"})])
        await until(cluster, lambda: bool(cluster.jobset("other").get("status")))
        causes = {cause.kind: cause.text for cause in (await explained(cluster, "other")).causes}
        assert wire.BARRIER in causes["SpecProblem"]
        assert "saw 'soon'" in causes["SpecProblem"]


async def test_a_manifest_whose_pods_the_server_refuses_is_named() -> None:
    """When the server refuses the Pods, explain gives the reason from the Job's Event."""
    async with training(1) as cluster:
        await cluster.apply([another(2)])
        await until(cluster, lambda: bool(cluster.jobset("other").get("status")))
        facts = await read_facts(connection(cluster), "other")
        refused = Event(reason="FailedCreate", message='pods is forbidden: exceeded quota "q"', type="Warning")
        gone = group_state(facts.state.jobset.raw if facts.state.jobset else {}, ())
        found = explanation_of(gone, (), (), {"other-workers-0": [refused]})
        (cause,) = found.causes
        assert cause.kind == "Missing"
        assert 'exceeded quota "q"' in cause.text
        assert cause.advice.endswith("kubectl describe job other-workers-0 -n default")


async def test_what_cannot_be_read_is_said_and_the_rest_is_told() -> None:
    """When Events are forbidden, explain says so and still names the cause."""
    async with training() as cluster:
        await lost(cluster)
        facts = await read_facts(Spy(cluster.server, "/events").connection(), "train")
        found = explain(facts, now_s=cluster.clock.wall_s())
        assert [cause.kind for cause in found.causes] == ["NodeLost"]
        assert "Events of JobSet train: 403" in text_of(found)


@pytest.mark.parametrize(
    ("changes", "status", "kind", "said"),
    [
        ({"managedBy": "example.com/x"}, {}, "ManagedByAnother", "spec.managedBy is example.com/x"),
        ({"suspend": True}, {}, "Suspended", "spec.suspend is true"),
        ({}, {}, "NoController", "no controller has touched it in"),
    ],
)
def test_causes_of_the_jobset_itself(changes: KubeObject, status: KubeObject, kind: str, said: str) -> None:
    """Causes of the JobSet itself are found without any Pod."""
    raw = jobset(1, status=status, **changes)
    raw["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    found = explanation_of(group_state(raw, ()), now_s=1_767_229_200.0)
    assert said in {cause.kind: cause.text for cause in found.causes}[kind]


def test_a_blocked_container_is_told_once() -> None:
    """Of Pods that are late explain says itself why; of Pods that have joined the condition says it."""
    said = "1 Pod: image cannot be pulled: container worker, image train:1: ErrImagePull: no such host"
    told = {"conditions": [{"type": "ContainersBlocked", "status": "True", "message": said}]}
    wait = {"waiting": {"reason": "ErrImagePull", "message": "no such host"}}
    status = {"phase": "Pending", "containerStatuses": [{"name": "worker", "image": "train:1", "state": wait}]}
    for epoch, kinds in ((0, ["Image"]), (1, ["ContainersBlocked", "NotStarted"])):
        pods = [pod(0, epoch, status=status)]
        raw = jobset(1, status=wire.status_of_epochs(epoch, 0) | told)
        found = explanation_of(group_state(raw, pods), pods).causes
        assert [cause.kind for cause in found] == kinds
        assert found[0].text == said
        assert "kubectl" in found[0].advice


def test_a_huge_group_is_told_by_reasons() -> None:
    """5,000 slots without a Pod give one cause with ten names and a count; JSON has all names."""
    found = explanation_of(group_state(jobset(5_000, status=wire.status_of_epochs(3, 3)), ()))
    lines = [text for text, _ in explanation_lines(found)]
    assert len(lines) < 20
    assert any("5,000 Pods: no Pod" in line for line in lines)
    assert any(line.endswith("and 4,990 more") for line in lines)
    assert len(found.causes[0].pods) == 5_000


def test_what_only_an_event_knows_is_told() -> None:
    """A volume that cannot be mounted is named from its Event; the Pod's status says only ContainerCreating."""
    rows = decode_table(table(("train-big-job-0-0-abcde", "0/1", "ContainerCreating", "node-1")), "train", 1).pods
    state = group_state(jobset(1, status=wire.status_of_epochs(1, 0)), rows)
    event = Event(reason="FailedMount", message='MountVolume.SetUp failed for volume "data"', type="Warning")
    (cause,) = explanation_of(state, rows, (), {"train-big-job-0-0-abcde": [event]}).causes
    assert cause.kind == "Creating"
    assert 'MountVolume.SetUp failed for volume "data"' in cause.text


async def test_a_crash_loop_is_told() -> None:
    """While the next epoch waits, and while it runs, `explain` says how often the workers failed without progress."""
    async with training(2, maxRestarts=20) as cluster:
        for epoch in (2, 3):
            kill(cluster)
            await until(cluster, lambda epoch=epoch: status(cluster).get("deprecatedEpoch") == epoch - 1)  # type: ignore[misc]
            if epoch == 3:
                await until(cluster, lambda: "until" in status(cluster).get(wire.CRASH_LOOP, {}))
                text = text_of(await explained(cluster))
                assert "crash loop: 1 restart in " in text
                assert ", next in " in text
                assert "does not say so yet" not in text
            await synced(cluster, epoch, 2)
        for whole_max in (WHOLE_MAX, 1):
            facts = await read_facts(replace(connection(cluster), whole_max=whole_max), "train")
            text = text_of(explain(facts, now_s=cluster.clock.wall_s()))
            assert "crash loop: 1 restart in " in text
            assert "read its log: inplace logs train -n default" in text, "kubelet may have removed that container"
            assert "Nothing keeps it from training" not in text
            assert "it trains" not in text


async def test_a_job_beyond_its_deadline_is_named() -> None:
    """A JobSet that failed because a Job's activeDeadlineSeconds were over says so, and not only that a Job failed."""
    async with training(maxRestarts=0) as cluster:
        kill(cluster)
        await until(cluster, lambda: status(cluster).get("terminalState") == "Failed")
        facts = await read_facts(connection(cluster), "train")
        failed = {"reason": "FailedJobs", "message": "jobset failed (first failed job: train-workers-0)"}
        state = replace(facts.state, conditions={"Failed": failed})
        event = Event(
            reason="DeadlineExceeded", message="Job was active longer than specified deadline", type="Warning"
        )
        (cause,) = explain(replace(facts, state=state, more_events={"train-workers-0": [event]}), now_s=0.0).causes
        assert (
            cause.text == "DeadlineExceeded: Job train-workers-0 was active for longer than its activeDeadlineSeconds"
        )
        assert "a restart in place keeps the Job" in cause.advice
        (cause,) = explain(replace(facts, state=state, more_events={"train-workers-0": []}), now_s=0.0).causes
        assert cause.text == "jobset failed (first failed job: train-workers-0)"
        assert failed_job(facts.state) == ""


async def test_a_suspension_is_no_failure() -> None:
    """Neither while its Pods end, nor after the resume: the status and `explain` name no first failure."""
    async with training(2) as cluster:
        said: list[str] = []
        for suspend in (True, False):
            await cluster.client().patch(JOBSETS, "default", "train", {"spec": {"suspend": suspend}})
            for _ in range(8):  # its Pods end within 2 s, and the new ones are there within 2 s
                await cluster.clock.sleep(0.25)
                said.append(text_of(await explained(cluster)))
        await synced(cluster, 2, 2)
        said.append(text_of(await explained(cluster)))
        assert [text for text in said if "first failure" in text] == []
        assert "group restart to epoch 2 began: it was resumed" in said[-1]
        assert "firstFailure" not in status(cluster)[wire.LAST_GROUP_RESTART]
