"""A Pod that cannot join is told by what it lacks: a command that runs, an init container's success, an agent."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from msgspec.structs import replace

from inplace.cli.group.pod_facts import Annotations, PodFact
from inplace.cli.group.state import group_state
from inplace.cli.group.straggler import Why, straggler_of
from inplace.cli.status.advice import ADVICE, why_failed
from inplace.common.jobset import conditions
from inplace.common.jobset.causes import Failure
from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from inplace.controller.plan.observed import NeverJoined
from tests.cli.facts import NOW, RUNS, explanation_of, pod
from tests.cli.scenes import documents, jobset_of

LATER = "2026-01-01T01:00:00Z"
MESSAGE = 'exec: "python3": executable file not found in $PATH'
ENDED = {"terminated": {"exitCode": 3, "reason": "Error", "startedAt": NOW, "finishedAt": NOW}}
WAITS = {"waiting": {"reason": "PodInitializing"}}
BACK_OFF = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}
GUARD = ("python3", "/var/run/inplace/inplace-agent", "guard", "--", "torchrun", "train.py")
SUPERVISOR = ("inplace-agent", "run", "--", "torchrun", "train.py")


def ended(restarts: int, *, again: bool = True, command: tuple[str, ...] = (), epoch: int = 0, **how: Any) -> PodFact:
    """Return a Pod whose worker's container ended like this, and runs again."""
    end = {"startedAt": NOW, "finishedAt": NOW, "reason": "Error"} | how
    state = {"running": {"startedAt": LATER}} if again else {"terminated": end}
    worker = {"name": "worker", "restartCount": restarts, "state": state, "lastState": {"terminated": end}}
    agent = {"name": "inplace-agent", "restartCount": restarts, "state": RUNS}
    spec = {"containers": [{"name": "worker", "command": command}]}
    return pod(0, epoch, spec=spec, status={"containerStatuses": [worker], "initContainerStatuses": [agent]})


def told(phase: str, *inits: KubeObject, worker: KubeObject | None = None, sidecars: tuple[str, ...] = ()) -> PodFact:
    """Return a Pod with the statuses of its init containers, and of its worker."""
    workers = [] if worker is None else [{"name": "worker"} | worker]
    programs = [{"name": one["name"], "restartPolicy": "Always" if one["name"] in sidecars else None} for one in inits]
    statuses = {"phase": phase, "initContainerStatuses": list(inits), "containerStatuses": workers}
    return pod(spec={"initContainers": programs}, status=statuses)


def fetching(phase: str, **fetch: Any) -> PodFact:
    """Return a Pod whose init container `fetch` stands so, and whose agent waits for it."""
    agent = {"name": "inplace-agent", "state": WAITS}
    return told(phase, {"name": "fetch"} | fetch, agent, worker={"state": WAITS}, sidecars=("inplace-agent",))


def failed_before(times: str) -> PodFact:
    """Return a Pod that failed as others of its index before it, and that its Job keeps until it is replaced."""
    found = told("Failed", worker={"state": ENDED})
    annotations, metadata = Annotations(index_failures=times), found.metadata
    return replace(found, metadata=replace(metadata, annotations=annotations, deletion_timestamp=NOW))


@pytest.mark.parametrize("again", [True, False])
@pytest.mark.parametrize(
    ("how", "why", "words"),
    [
        ({"exitCode": 127}, Why.NOT_FOUND, "container worker, exit code 127, 9 restarts: not found"),
        ({"exitCode": 126}, Why.NOT_FOUND, "container worker, exit code 126, 9 restarts: not executable"),
        ({"exitCode": 128, "reason": "StartError", "message": MESSAGE}, Why.NOT_FOUND, f"9 restarts: {MESSAGE}"),
        ({"exitCode": 3}, Why.AGENT_REFUSES, "exit code 3 (barrier unavailable)"),
        ({"exitCode": 7}, Why.CRASHING, "container worker, exit code 7, 9 restarts"),
    ],
)
def test_it_is_named(again: bool, how: dict[str, Any], why: Why, words: str) -> None:
    """Whether it runs at this moment or not; the advice has a command, and no word of rights."""
    late = straggler_of("w-0-0", ended(9, again=again, **how), 0, 1)
    assert (late.why, words in late.detail) == (why, True), late.detail
    assert "rights" not in ADVICE[late.why]
    assert "kubectl" in ADVICE[late.why]


INIT_LOG = "train-big-job-0-0 -c fetch"
LATE: dict[str, tuple[PodFact, Why, str, str | None]] = {  # Pod, reason, its detail, the arguments of `kubectl logs`
    # Ends that group restarts bring about, and those after work.
    "it ended a few times": (ended(2, exitCode=7), Why.SILENT, "", ""),
    "a restart": (ended(9, exitCode=88), Why.SILENT, "", ""),
    "it was ended for a restart": (ended(9, exitCode=143), Why.SILENT, "", ""),
    "it worked for long": (ended(9, exitCode=7, finishedAt=LATER), Why.SILENT, "", ""),
    "it completed": (ended(9, exitCode=0), Why.SILENT, "", ""),
    # 3 of a worker that joined is no barrier that is unavailable.
    "a worker with the agent's code": (
        ended(9, exitCode=3, epoch=1),
        Why.CRASHING,
        "container worker, exit code 3, 9 restarts",
        None,
    ),
    # Kubelet's lastState of a group restart is 137 as well; a Pod that has joined is only behind.
    "a restart of the whole Pod": (
        ended(9, exitCode=137, reason="RestartingAllContainers"),
        Why.CRASHING,
        "container worker, 9 restarts of the whole Pod",
        None,
    ),
    "a restart in place": (
        ended(9, exitCode=137, reason="RestartingAllContainers", epoch=1),
        Why.BEHIND,
        "at epoch 1, which is deprecated",
        "",
    ),
    # The runtime may not say which program the image lacks; 127 of a guard that has joined is of the worker's command.
    "no program": (
        ended(9, command=GUARD, exitCode=128, reason="StartError"),
        Why.NOT_FOUND,
        "container worker, exit code 128, 9 restarts: the image has no python3",
        None,
    ),
    "no program, by its code": (
        ended(9, command=GUARD, exitCode=127),
        Why.NOT_FOUND,
        "container worker, exit code 127, 9 restarts: the image has no python3",
        None,
    ),
    "no program of the worker's": (
        ended(9, command=GUARD, exitCode=127, epoch=1),
        Why.NOT_FOUND,
        "container worker, exit code 127, 9 restarts: not found",
        None,
    ),
    "no program, in the runtime's words": (
        ended(9, command=GUARD, exitCode=128, reason="StartError", message=MESSAGE),
        Why.NOT_FOUND,
        f"container worker, exit code 128, 9 restarts: {MESSAGE}",
        None,
    ),
    # An init container, whether the Pod failed with it or kubelet tries again.
    "init failed": (fetching("Failed", state=ENDED), Why.INIT_FAILED, "container fetch, exit code 3", INIT_LOG),
    "init ended": (fetching("Pending", state=ENDED), Why.INIT_FAILED, "container fetch, exit code 3", INIT_LOG),
    "init ends again and again": (
        fetching("Pending", state=BACK_OFF, lastState=ENDED, restartCount=4),
        Why.INIT_FAILED,
        "container fetch, exit code 3, 4 restarts",
        INIT_LOG,
    ),
    # An old failure explains nothing where the image, the command or a restart does.
    "init has no image": (
        fetching("Pending", state={"waiting": {"reason": "ImagePullBackOff"}}, lastState=ENDED),
        Why.IMAGE,
        "container fetch: ImagePullBackOff",
        "",
    ),
    "init runs again": (told("Pending", {"name": "fetch", "state": RUNS, "lastState": ENDED}), Why.SILENT, "", ""),
    "init has no program": (
        fetching("Pending", state={"terminated": ENDED["terminated"] | {"exitCode": 127}}),
        Why.NOT_FOUND,
        "container fetch, exit code 127, 0 restarts: not found",
        INIT_LOG,
    ),
    "init is restarted in place": (
        fetching("Pending", state={"terminated": ENDED["terminated"] | {"reason": "RestartingAllContainers"}}),
        Why.RESTARTING,
        "",
        "",
    ),
    "a sidecar is no init container": (
        told("Running", {"name": "inplace-agent", "state": ENDED}, sidecars=("inplace-agent",)),
        Why.RESTARTING,
        "",
        "",
    ),
    "a Pod failed, and nobody wrote why": (
        told("Failed", worker={"state": ENDED}),
        Why.FAILED,
        "container worker, exit code 3",
        "train-big-job-0-0 -c worker",
    ),
    "a Pod failed, and its index backs off alone": (
        failed_before("1"),
        Why.FAILED,
        "its Job makes the next one at 2026-01-01T00:00:20Z, 20 s after its end; container worker, exit code 3",
        "train-big-job-0-0 -c worker",
    ),
    # Without --previous kubectl shows the log of the container that runs.
    "a worker runs again": (
        ended(9, exitCode=7),
        Why.CRASHING,
        "container worker, exit code 7, 9 restarts",
        "train-big-job-0-0 -c worker --previous",
    ),
}


@pytest.mark.parametrize(("fact", "why", "detail", "log"), LATE.values(), ids=LATE)
def test_a_late_pod_is_named_by_what_it_lacks(fact: PodFact, why: Why, detail: str, log: str | None) -> None:
    """With the words of what it lacks, and the command that shows the log of the container to blame."""
    late = straggler_of("w-0-0", fact, 1, 2)
    assert (late.why, late.detail) == (why, detail)
    assert log is None or late.log == log


def stored() -> KubeObject:
    """Return the example's JobSet as the API server stores it, before its first epoch."""
    raw = deepcopy(jobset_of(documents(1)))
    raw["metadata"] |= {"uid": "u", "resourceVersion": "1", "namespace": "default"}
    return raw | {"status": wire.status_of_epochs(0, 0)}


def unwritten() -> tuple[KubeObject, KubeObject]:
    """Return a JobSet whose template has no agent, and the template's Pod."""
    raw = stored()
    spec = raw["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    del spec["initContainers"]
    del spec["volumes"]
    spec["containers"] = [{"name": "worker", "image": "python:3.12", "command": ["python3", "train.py"]}]
    return raw, spec


def test_a_pod_without_an_agent_is_told_so() -> None:
    """No log of an agent is advised that is not there; where its lack is told is."""
    raw, spec = unwritten()
    fact = pod(job="workers", spec=spec)
    (cause,) = explanation_of(group_state(raw, [fact]), [fact]).causes
    assert (cause.kind, cause.text) == ("NoAgent", "1 Pod: no agent in it")
    assert "AgentNotAdded" in cause.advice
    assert "inplace lint -f FILE" in cause.advice


def test_an_agent_that_the_controller_added_is_one() -> None:
    """The template has none, the Pod has: its log says more. Where containers were not read, nothing is said."""
    raw, spec = unwritten()
    added = spec | {
        "initContainers": [{"name": "inplace-agent", "command": ["inplace-agent"], "restartPolicy": "Always"}]
    }
    for fact in (pod(job="workers", spec=added), pod(job="workers")):
        (late,) = group_state(raw, [fact]).stragglers
        assert late.why is Why.SILENT


def test_a_pod_whose_agent_is_silent_is_not() -> None:
    """The same Pod of the whole example has an agent, whose log says more."""
    (late,) = group_state(stored(), [pod(job="workers")]).stragglers
    assert late.why is Why.SILENT


@pytest.mark.parametrize(
    ("command", "code", "advice"),
    [
        (GUARD, 128, "the image has no python3 (container worker): correct the command or the image"),
        (
            ("/inplace/bin/guard", "--", "train"),
            127,
            "the image has no train (container worker): correct the command or the image",
        ),
        (SUPERVISOR, 127, "the image has no torchrun (container worker): correct the command or the image"),
        (SUPERVISOR, 128, "the image has no inplace-agent (container worker): correct the command or the image"),
        ((), 127, "the image has no such program (container worker): correct the command or the image"),
        (GUARD, 1, "mend what that container starts with, and create the JobSet again"),
    ],
)
def test_after_the_end_the_program_is_named(command: tuple[str, ...], code: int, advice: str) -> None:
    """The Pods are gone; the condition has container and code, and the spec has the program."""
    template = {"spec": {"template": {"spec": {"containers": [{"name": "worker", "command": list(command)}]}}}}
    found = conditions.never_joined(str(NeverJoined(11, Failure("p", "n", "worker", code), stays=True)))
    condition = {"type": found.kind, "status": "True", "reason": found.reason, "message": found.message}
    raw = {
        "metadata": {"name": "train", "namespace": "default", "uid": "u", "resourceVersion": "1"},
        "spec": {"replicatedJobs": [{"name": "w", "template": template}]},
        "status": {"conditions": [condition]},
    }
    cause = why_failed(group_state(raw, ()), condition, ())
    assert f"ended 11 times before they joined: pod p on node n: container worker exited with {code}" in cause.text
    assert cause.advice == advice
