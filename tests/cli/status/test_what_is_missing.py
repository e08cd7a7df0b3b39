"""A Pod that cannot join is told by what it lacks: an agent in its template, or an init container's success."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from inplace.cli.group.pod_facts import PodFact
from inplace.cli.group.state import GroupState, group_state
from inplace.cli.group.straggler import Why, straggler_of
from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from tests.cli.facts import NOW, RUNS, explanation_of, pod
from tests.cli.scenes import documents, jobset_of


def told(phase: str, statuses: KubeObject, **spec: Any) -> PodFact:
    """Return the only Pod of the example, with these container statuses."""
    whole = {"phase": phase, "containerStatuses": []} | statuses
    return pod(name="train-workers-0-0-x", job="workers", spec=spec, status=whole)


def stored() -> KubeObject:
    """Return the example's JobSet as the API server stores it."""
    raw = deepcopy(jobset_of(documents(1)))
    raw["metadata"] |= {"uid": "u", "resourceVersion": "1", "namespace": "default"}
    return raw


def plain() -> KubeObject:
    """Return the example without its agent: restartStrategy InPlaceRestart alone."""
    raw = stored()
    spec = raw["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    del spec["initContainers"]
    spec["containers"] = [{"name": "worker", "image": "python:3.12", "command": ["python3", "train.py"]}]
    return raw


def state_of(raw: KubeObject, fact: PodFact) -> GroupState:
    """Return the JobSet with its one Pod."""
    return group_state(raw | {"status": wire.status_of_epochs(0, 0)}, [fact])


def test_a_pod_without_an_agent_is_told_so() -> None:
    """No log of an agent is advised that is not there; the command that adds one is."""
    fact = told("Running", {"containerStatuses": [{"name": "worker", "state": RUNS}]})
    state = state_of(plain(), fact)
    (cause,) = explanation_of(state, [fact]).causes
    assert (cause.kind, cause.text) == ("NoAgent", "1 Pod: no agent in its template")
    assert "inplace inject -f FILE" in cause.advice
    assert "log" not in cause.advice


def test_a_pod_whose_agent_is_silent_is_not() -> None:
    """The same Pod of the whole example has an agent, whose log says more."""
    fact = told("Running", {"containerStatuses": [{"name": "worker", "state": RUNS}]})
    (late,) = state_of(stored(), fact).stragglers
    assert late.why is Why.SILENT


ENDED = {"terminated": {"exitCode": 3, "reason": "Error", "startedAt": NOW, "finishedAt": NOW}}
WAITS = {"waiting": {"reason": "PodInitializing"}}
BACK_OFF = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}


@pytest.mark.parametrize(
    ("phase", "fetch", "words"),
    [
        ("Failed", {"state": ENDED}, "container fetch, exit code 3 (Error)"),
        ("Pending", {"state": ENDED}, "container fetch, exit code 3 (Error)"),
        (
            "Pending",
            {"state": BACK_OFF, "lastState": ENDED, "restartCount": 4},
            "container fetch, exit code 3 (Error), 4 restarts",
        ),
    ],
)
def test_a_failed_init_container_is_named(phase: str, fetch: dict[str, Any], words: str) -> None:
    """With its exit code and reason, whether the Pod failed with it or kubelet tries again; its log is one command."""
    agent = {"name": "inplace-agent", "state": WAITS}
    statuses = {
        "initContainerStatuses": [{"name": "fetch", **fetch}, agent],
        "containerStatuses": [{"name": "worker", "state": WAITS}],
    }
    inits = [{"name": "fetch"}, {"name": "inplace-agent", "restartPolicy": "Always"}]
    late = straggler_of("workers-0-0", told(phase, statuses, initContainers=inits), 0, 1)
    assert (late.why, late.detail, late.log) == (Why.INIT_FAILED, words, "train-workers-0-0-x -c fetch")


@pytest.mark.parametrize(
    ("fetch", "why"),
    [
        ({"state": {"waiting": {"reason": "ImagePullBackOff"}}, "lastState": ENDED}, Why.IMAGE),
        ({"state": RUNS, "lastState": ENDED}, Why.SILENT),
        ({"state": {"terminated": ENDED["terminated"] | {"exitCode": 127}}}, Why.NOT_FOUND),
        ({"state": {"terminated": ENDED["terminated"] | {"reason": "RestartingAllContainers"}}}, Why.RESTARTING),
    ],
    ids=["its image", "it runs again", "its command", "a restart in place"],
)
def test_what_holds_an_init_container_up_now_comes_first(fetch: dict[str, Any], why: Why) -> None:
    """An old failure explains nothing where the image, the command or a restart does."""
    statuses = {"initContainerStatuses": [{"name": "fetch", **fetch}], "containerStatuses": []}
    assert straggler_of("w-0-0", told("Pending", statuses, initContainers=[{"name": "fetch"}]), 0, 1).why is why


def test_a_sidecar_that_ends_is_no_init_container() -> None:
    """An agent that ended is started again by kubelet: that is a restart."""
    statuses = {"initContainerStatuses": [{"name": "inplace-agent", "state": ENDED}]}
    inits = [{"name": "inplace-agent", "restartPolicy": "Always"}]
    assert straggler_of("w-0-0", told("Running", statuses, initContainers=inits), 0, 1).why is Why.RESTARTING


def test_a_failed_pod_names_its_container() -> None:
    """Where nobody wrote a message: the name, exit code and reason of the first container that failed."""
    fact = told("Failed", {"containerStatuses": [{"name": "worker", "state": ENDED}]})
    late = straggler_of("w-0-0", fact, 0, 1)
    assert (late.why, late.detail) == (Why.FAILED, "container worker, exit code 3 (Error)")


def test_the_log_of_a_container_that_runs_again_is_the_previous_one() -> None:
    """Without --previous kubectl shows the log of the container that runs."""
    ended = {"terminated": ENDED["terminated"] | {"exitCode": 7}}
    states = {"state": RUNS, "lastState": ended, "restartCount": 9}
    late = straggler_of("w-0-0", told("Running", {"containerStatuses": [{"name": "worker", **states}]}), 0, 1)
    assert (late.why, late.log) == (Why.CRASHING, "train-workers-0-0-x -c worker --previous")
