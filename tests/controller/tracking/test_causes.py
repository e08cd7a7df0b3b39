"""The causes of group restarts: read from Pods, kept in the status, reported in Events and metrics."""

from __future__ import annotations

from typing import Any

import pytest

from inplace.common.jobset.last_restart import seconds_of
from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from inplace.common.wire.worker_failure import WorkerFailure, failure_text
from inplace.controller.tracking.signs import SKEW_S_MAX, UNSEEN_EXIT, seconds_since
from tests.controller.crew import Crew
from tests.controller.manifests import jobset, replicated_job
from tests.controller.rig import Rig

pytestmark = pytest.mark.virtual_time

ENDED: dict[str, Any] = {
    "exitCode": 137,
    "reason": "OOMKilled",
    "message": "cuda out of memory",
    "finishedAt": "2023-11-14T22:13:20Z",
}
EXIT = {name: value for name, value in ENDED.items() if name != "message"} | {"lastLine": ENDED["message"]}


async def die(rig: Rig, crew: Crew, pod: str, ended: KubeObject | None = None, seconds: float = 0.1) -> None:
    """Let a Pod's worker end, and time pass."""
    await rig.set_worker(crew, pod, seconds, ended=ended or ENDED)


async def test_a_worker_that_exits_is_the_cause(rig: Rig) -> None:
    """An exited worker's container, exit code, reason and message are in the first status write, Event and metric."""
    crew = await rig.started(jobset())
    dead, _ = crew.pods.values()
    before = rig.writes("/jobsets/train/status")
    await die(rig, crew, dead)
    entry = await crew.last_restart()
    failure = {"pod": dead, "container": "worker", **EXIT}
    assert (entry["epoch"], entry["trigger"], entry["firstFailure"]) == (2, "worker_exit", failure)
    assert "syncedAt" not in entry
    condition = await crew.condition("InPlaceRestarting")
    assert (condition["status"], condition["reason"]) == ("True", "WorkerExit")
    await rig.run_epoch(crew, 2)
    assert rig.writes("/jobsets/train/status") == before + 2
    assert (await crew.last_restart())["syncedAt"] > entry["startedAt"]
    assert (await crew.condition("InPlaceRestarting"))["status"] == "False"
    (event,) = await rig.events("GroupRestartStarted")
    for word in (dead, "worker killed by SIGKILL (137, OOMKilled)", "cuda out of memory"):
        assert word in event["note"]
    named = {"namespace": "default", "jobset": "train"}
    assert rig.sample("inplace_group_restarts_total", **named, outcome="finished", trigger="worker_exit") == 1
    assert rig.sample("inplace_group_restart_duration_seconds_count", trigger="worker_exit") == 1
    seconds = rig.sample("inplace_last_restart_duration_seconds", **named)
    assert rig.sample("inplace_lost_pod_seconds_total", **named) == pytest.approx(2 * seconds)
    info = rig.sample(
        "inplace_first_failure_info",
        **named,
        pod=dead,
        node="",
        container="worker",
        reason="OOMKilled",
        exit_code="137",
    )
    assert info == 1
    assert rig.sample("inplace_last_restart_timestamp_seconds", **named) > 1_700_000_000


async def test_the_first_of_several_is_the_cause(rig: Rig) -> None:
    """The first failure is the cause; later failures and late reports of the old epoch are not."""
    crew = await rig.started(jobset())
    first, second = crew.pods.values()
    await die(rig, crew, first, seconds=0.0)
    await die(rig, crew, second, ENDED | {"exitCode": 1})
    await rig.meet(crew, 2, 0.1)
    await die(rig, crew, second, ENDED | {"exitCode": 1}, seconds=0.0)  # kubelet's status lags behind the announcement
    await rig.settle(0.1)
    assert (await crew.last_restart())["firstFailure"]["pod"] == first
    for pod in crew.pods.values():
        await crew.set_worker(pod, run=2)
    await rig.settle(0.1)
    await rig.announce(crew, second, 3, 0.1)
    entry = await crew.last_restart()
    assert (entry["epoch"], entry["firstFailure"]["pod"]) == (3, second)
    assert "no exit code" in entry["firstFailure"]["message"]


async def test_an_agent_that_ended_is_named_with_its_exit_code(rig: Rig) -> None:
    """An ended sidecar is named with its exit code: its container status since the last sync is the cause."""
    crew = await rig.started(jobset())
    first, second = crew.pods.values()
    await end_agent(crew, first, ENDED)
    await rig.announce(crew, first, 2, 0.1)
    entry = await crew.last_restart()
    failure = {"pod": first, "container": "agent", **EXIT}
    assert (entry["trigger"], entry["firstFailure"]) == ("worker_exit", failure)
    await rig.run_epoch(crew, 2)
    await end_agent(crew, second, ENDED | {"finishedAt": "2023-11-14T22:13:19Z"})  # reported late
    await rig.announce(crew, second, 3, 0.1)
    entry = await crew.last_restart()
    assert (entry["epoch"], entry["firstFailure"]["pod"]) == (3, second)
    assert "exitCode" not in entry["firstFailure"]
    assert "no exit code" in entry["firstFailure"]["message"]


@pytest.mark.parametrize(
    ("phases", "code"),
    [("v1,at=1,code=137", 137), ("v1,at=1,code=0", None), ("v1,at=1", None), ("v1,code=1000", None), ("code=7", None)],
    ids=["told", "it completed", "not told", "no exit code", "garbage"],
)
async def test_the_announcement_tells_how_a_process_ended(rig: Rig, phases: str, code: int | None) -> None:
    """Below a guard or a supervisor no container ends with the worker, and kubelet has nothing to say."""
    crew = await rig.started(jobset())
    first = next(iter(crew.pods.values()))
    await crew.annotate(first, wire.epoch_annotations(2) | {wire.PHASES: phases})
    await rig.settle(0.1)
    failure = (await crew.last_restart())["firstFailure"]
    assert (failure["pod"], failure.get("exitCode")) == (first, code)
    assert failure.get("message") == (None if code else UNSEEN_EXIT)


async def end_agent(crew: Crew, pod: str, ended: KubeObject) -> None:
    """Let a Pod's sidecar end."""
    agent = {"name": "agent", "state": {"terminated": ended}, "image": "agent:1", "imageID": "", "ready": False}
    await crew.set_pod(pod, initContainerStatuses=[agent | {"restartCount": 0}])


async def test_a_pod_that_is_lost_is_the_cause_from_its_loss_on(rig: Rig) -> None:
    """A lost Pod is the cause, and the restart began at its loss, not at its replacement's announcement."""
    crew = await rig.started(jobset())
    lost, other = crew.pods.values()
    disruption = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}
    await crew.set_pod(lost, conditions=[disruption | {"message": "node is not ready"}])
    await crew.remove(lost)
    await rig.settle(7.0)
    replacement = await crew.replace("train-workers-0", 0)
    await rig.announce(crew, replacement, 2, 0.1)
    entry = await crew.last_restart()
    assert entry["trigger"] == "disrupted"
    assert entry["firstFailure"] == {
        "pod": lost,
        "reason": "DeletionByTaintManager",
        "message": "node is not ready",
    }
    await rig.announce(crew, other, 2, 0.1)
    assert await crew.epochs() == (2, 1)
    assert rig.sample("inplace_group_restart_duration_seconds_sum", trigger="disrupted") >= 7.0


async def test_a_failed_job_is_the_cause_and_keeps_who_failed_first(rig: Rig) -> None:
    """A failed Job has trigger job_failed and names the Pod that failed first, or else the Job's message."""
    crew = await rig.started(jobset())
    await rig.finish_job(crew, "train-workers-0", "Failed", 0.2, reason="BackoffLimitExceeded", message="too many")
    entry = await crew.last_restart()
    assert entry["trigger"] == "job_failed"
    assert entry["firstFailure"] == {
        "reason": "BackoffLimitExceeded",
        "message": "job train-workers-0: too many",
    }


async def test_a_resize_is_no_failure(rig: Rig) -> None:
    """A restart by shrinking has trigger resize and no failure."""
    crew = await rig.started(jobset(jobs=[replicated_job(pods=3)]))
    job = {"name": "workers", "replicas": 1, "template": replicated_job(pods=2)["template"]}
    await rig.edit({"spec": {"replicatedJobs": [job]}}, 0.2)
    entry = await crew.last_restart()
    assert (entry["trigger"], "firstFailure" in entry) == ("resize", False)


async def test_a_new_controller_reads_the_cause_from_the_status(rig: Rig) -> None:
    """A new controller ends a running restart with the trigger and the start that the old controller wrote."""
    crew = await rig.started(jobset())
    await die(rig, crew, next(iter(crew.pods.values())))
    await rig.change_controller()
    await rig.settle(20.0)
    await rig.meet(crew, 2, 0.1)
    entry = await crew.last_restart()
    assert (entry["trigger"], entry["firstFailure"]["exitCode"]) == ("worker_exit", 137)
    assert "syncedAt" in entry
    labels = {"namespace": "default", "jobset": "train", "outcome": "finished", "trigger": "worker_exit"}
    assert rig.sample("inplace_group_restarts_total", -1, **labels) == 1
    (note,) = (event["note"] for event in await rig.events("GroupRestartFinished"))
    assert f"in {seconds_of(entry):.1f} s" in note  # the status knows, whoever leads


async def test_a_new_controller_does_not_guess_what_it_has_not_seen() -> None:
    """When a worker ended without a controller, its announcement alone is not reported as a lost Pod."""
    rig = Rig()
    async with rig.running():
        crew = await rig.started(jobset())
    await crew.announce(next(iter(crew.pods.values())), 2)
    async with rig.running(rig.controller()):
        await rig.settle(20.0)
        entry = await crew.last_restart()
        assert (entry["epoch"], entry["trigger"], "firstFailure" in entry) == (2, "unknown", False)


async def test_one_restart_too_many_still_says_who_failed(rig: Rig) -> None:
    """When one restart too many fails the JobSet, the status names the Pod that failed."""
    crew = await rig.started(jobset(restarts_max=0))
    first = next(iter(crew.pods.values()))
    await rig.announce(crew, first, 2, 0.1)
    assert "terminalState" not in await crew.status()  # another Pod may tell of a failure that came before
    await rig.settle(0.5)
    status = await crew.status()
    assert status["terminalState"] == "Failed"
    entry = status[wire.LAST_GROUP_RESTART]
    assert (entry["epoch"], entry["trigger"], "syncedAt" in entry) == (2, "worker_exit", False)
    assert entry["firstFailure"]["pod"] == first
    labels = {"namespace": "default", "jobset": "train", "outcome": "exceeded", "trigger": "worker_exit"}
    assert rig.sample("inplace_group_restarts_total", **labels) == 1


async def test_the_first_start_is_no_restart(rig: Rig) -> None:
    """The first start of a group is not reported as a restart."""
    crew = await rig.started(jobset())
    assert await crew.last_restart() == {}
    assert await crew.find_condition("InPlaceRestarting") is None


@pytest.mark.parametrize(
    ("finished_at", "seconds"),
    [("2023-11-14T22:13:19Z", 1.0), ("2023-11-14T22:13:25Z", None), ("2023-11-14T22:10:00Z", None), ("", None)],
)
def test_a_clock_that_cannot_be_right_is_not_believed(finished_at: str, seconds: float | None) -> None:
    """An end in the future or long ago is not used to measure the detection time."""
    assert seconds_since(finished_at, 1_700_000_000.0) == seconds
    assert SKEW_S_MAX < 200


@pytest.mark.parametrize(
    ("code", "fields", "words"),
    [
        (
            ",code=137",
            {"exitCode": 137},
            "container worker killed by SIGKILL (137)",
        ),
        (
            ",code=7,vain=3",
            {
                "exitCode": 7,
                "message": "the last 3 restarts did not help, so its Pod gets clean containers",
            },
            "container worker exited with 7: the last 3 restarts did not help",
        ),
        ("", {"message": "the container ended without a word"}, "the container ended without a word"),
    ],
)
async def test_a_death_that_its_agent_tells_is_the_cause(rig: Rig, code: str, fields: KubeObject, words: str) -> None:
    """Before kubelet has seen it: the epoch is deprecated by one write, with the code and the moment that were told."""
    crew = await rig.started(jobset())
    dead, _ = crew.pods.values()
    before = rig.writes("/jobsets/train/status")
    await rig.tell(crew, dead, f"v1,epoch=1{code},at=1700000000123")
    entry = await crew.last_restart()
    failure = {"pod": dead, "container": "worker", "finishedAt": "2023-11-14T22:13:20.123Z", **fields}
    assert (entry["epoch"], entry["trigger"], entry["firstFailure"]) == (2, "worker_exit", failure)
    assert rig.writes("/jobsets/train/status") == before + 1
    (event,) = await rig.events("GroupRestartStarted")
    assert words in event["note"]
    await rig.run_epoch(crew, 2)
    await rig.tell(crew, dead, f"v1,epoch=1{code},at=1700000000124", seconds=0.0)  # a PATCH that was long on its way
    await rig.settle(0.1)
    assert wire.epochs_of_status(await crew.status()) == (2, 1)


@pytest.mark.parametrize(("step", "words"), [(",step=1200", "silent for 11 s at step 1200"), ("", "silent for 11 s")])
async def test_a_stall_that_its_agent_tells_is_the_cause(rig: Rig, step: str, words: str) -> None:
    """With a trigger of its own; that the worker is killed then, and its peers tell too, is no news."""
    crew = await rig.started(jobset())
    silent, peer = crew.pods.values()
    await rig.tell(crew, silent, f"v1,epoch=1,stalled=11{step},at=1700000000123")
    await rig.tell(crew, peer, "v1,epoch=1,stalled=12,step=1201,at=1700000000200", seconds=0.0)
    await die(rig, crew, silent)
    entry = await crew.last_restart()
    moment = {"finishedAt": "2023-11-14T22:13:20.123Z"}
    failure = {"pod": silent, "container": "worker", "reason": "Stalled", "message": words, **moment}
    assert (entry["epoch"], entry["trigger"], entry["firstFailure"]) == (2, "stalled", failure)
    assert (await crew.condition("InPlaceRestarting"))["reason"] == "Stalled"
    assert wire.epochs_of_status(await crew.status()) == (1, 1)
    await rig.run_epoch(crew, 2)
    (event,) = await rig.events("GroupRestartStarted")
    assert f"a worker hangs: pod {silent}: Stalled: {words}" in event["note"]
    named = {"namespace": "default", "jobset": "train"}
    assert rig.sample("inplace_group_restarts_total", **named, outcome="finished", trigger="stalled") == 1


@pytest.mark.parametrize("text", ["v1,epoch=2,at=1700000000123", "garbage", "v1,epoch=1", "v1,epoch=1,stalled=11"])
async def test_a_death_that_cannot_be_restarts_nobody(rig: Rig, text: str) -> None:
    """Of an epoch that nobody runs in, or unreadable; the latter is reported."""
    crew = await rig.started(jobset())
    pod, _ = crew.pods.values()
    await rig.tell(crew, pod, text)
    assert wire.epochs_of_status(await crew.status()) == (1, 0)
    assert len(await rig.events("UnreadablePod")) == (not text.endswith("123"))


async def test_the_last_line_comes_from_the_termination_message(rig: Rig) -> None:
    """It stands in the status, clean, in the Event and in the history; no message has the rest of the log."""
    crew = await rig.started(jobset())
    dead, _ = crew.pods.values()
    log = "step 1\nTraceback (most recent call last):\nRuntimeError: \x1b[31mno route, token=hunter2\x1b[0m\nwaiting\n"
    await die(rig, crew, dead, ENDED | {"message": log, "reason": "Error"})
    failure = (await crew.last_restart())["firstFailure"]
    assert failure["lastLine"] == "RuntimeError: no route, token=***"
    assert "message" not in failure
    (event,) = await rig.events("GroupRestartStarted")
    assert event["note"].endswith("container worker killed by SIGKILL (137): RuntimeError: no route, token=***")
    await rig.run_epoch(crew, 2)
    (kept,) = (await crew.status())["restartHistory"]
    assert kept["lastLine"] == failure["lastLine"]


async def test_what_kubelet_says_after_the_agent_is_added(rig: Rig) -> None:
    """The agent tells first; the last line of the same exit comes with the write that ends the restart."""
    crew = await rig.started(jobset())
    dead, other = crew.pods.values()
    await rig.tell(crew, dead, failure_text(WorkerFailure(1, 1, rig.clock.wall_s())))
    before = rig.writes("/jobsets/train/status")
    await die(rig, crew, other, ENDED | {"exitCode": 1, "message": "RuntimeError: a peer is gone"}, seconds=0.0)
    await die(rig, crew, dead, ENDED | {"exitCode": 1, "message": "RuntimeError: CUDA error"})
    assert rig.writes("/jobsets/train/status") == before
    await rig.run_epoch(crew, 2)
    failure = (await crew.last_restart())["firstFailure"]
    assert (failure["pod"], failure["exitCode"], failure["lastLine"]) == (dead, 1, "RuntimeError: CUDA error")


async def test_the_exit_of_a_worker_that_hung_is_no_news(rig: Rig) -> None:
    """Its agent kills it: exit code 137 says nothing of the failure."""
    crew = await rig.started(jobset())
    hung, _ = crew.pods.values()
    await rig.tell(crew, hung, failure_text(WorkerFailure(1, None, rig.clock.wall_s(), 9)))
    await die(rig, crew, hung, ENDED | {"message": "killed"})
    await rig.run_epoch(crew, 2)
    entry = await crew.last_restart()
    assert (entry["trigger"], entry["firstFailure"].get("exitCode")) == ("stalled", None)


async def test_words_of_the_runtime_stay_a_message(rig: Rig) -> None:
    """A container that never ran has no last line; the runtime says why."""
    crew = await rig.started(jobset())
    dead, _ = crew.pods.values()
    words = 'exec: "pyhton": executable file not found in $PATH'
    await die(rig, crew, dead, ENDED | {"exitCode": 128, "reason": "StartError", "message": words})
    failure = (await crew.last_restart())["firstFailure"]
    assert (failure["message"], failure.get("lastLine")) == (words, None)


@pytest.mark.parametrize(("epoch", "line"), [(1, "RuntimeError: token=***"), (2, None), (0, None)])
async def test_the_agent_tells_the_last_line(rig: Rig, epoch: int, line: str | None) -> None:
    """With its report or its announcement, of the epoch that failed; the controller cleans it again."""
    for told in ({wire.WORKER_FAILED: failure_text(WorkerFailure(1, 7, 1.0))}, wire.epoch_annotations(2)):
        crew = await rig.started(jobset(f"train-{len(told)}"))
        first = next(iter(crew.pods.values()))
        said = {wire.LAST_LINE: f"v1,epoch={epoch},at=1700000000123,line=RuntimeError: \x1b[1mtoken=hunter2"}
        await crew.annotate(first, told | {wire.PHASES: "v1,at=1,code=7"} | said)
        await rig.settle(0.1)
        failure = (await crew.last_restart())["firstFailure"]
        assert (failure["pod"], failure["exitCode"], failure.get("lastLine")) == (first, 7, line)
