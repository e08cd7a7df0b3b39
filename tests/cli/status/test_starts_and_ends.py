"""A container that starts and ends at once, again and again, is named with its exit code; nobody looks for rights."""

from __future__ import annotations

from typing import Any

import pytest

from inplace.cli.group.pod_facts import PodFact
from inplace.cli.group.state import group_state
from inplace.cli.group.straggler import Why, straggler_of
from inplace.cli.status.advice import ADVICE
from inplace.cli.status.why_failed import why_failed
from inplace.controller.plan.observed import NeverJoined
from inplace.controller.spec import conditions
from inplace.controller.spec.causes import Failure
from tests.cli.facts import NOW, RUNS, pod

LATER = "2026-01-01T01:00:00Z"
MESSAGE = 'exec: "python3": executable file not found in $PATH'


def ended(restarts: int, *, again: bool = True, command: tuple[str, ...] = (), epoch: int = 0, **how: Any) -> PodFact:
    """Return a Pod whose worker's container ended like this, and runs again."""
    end = {"startedAt": NOW, "finishedAt": NOW, "reason": "Error"} | how
    state = {"running": {"startedAt": LATER}} if again else {"terminated": end}
    worker = {"name": "worker", "restartCount": restarts, "state": state, "lastState": {"terminated": end}}
    agent = {"name": "inplace-agent", "restartCount": restarts, "state": RUNS}
    spec = {"containers": [{"name": "worker", "command": command}]}
    return pod(0, epoch, spec=spec, status={"containerStatuses": [worker], "initContainerStatuses": [agent]})


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


@pytest.mark.parametrize(
    "fact",
    [
        ended(2, exitCode=7),
        ended(9, exitCode=88),
        ended(9, exitCode=143),
        ended(9, exitCode=7, finishedAt=LATER),
        ended(9, exitCode=0),
    ],
    ids=["too few", "a restart", "ended for one", "it worked for long", "it completed"],
)
def test_other_ends_say_nothing(fact: PodFact) -> None:
    """Ends that group restarts bring about, and those after work."""
    assert straggler_of("w-0-0", fact, 0, 1).why is Why.SILENT


def test_a_worker_that_joined_may_end_with_the_agents_codes() -> None:
    """3 of a worker is no barrier that is unavailable."""
    late = straggler_of("w-0-0", ended(9, exitCode=3, epoch=1), 1, 2)
    assert (late.why, late.detail) == (Why.CRASHING, "container worker, exit code 3, 9 restarts")


GUARD = ("python3", "/var/run/inplace/inplace-agent", "guard", "--", "torchrun", "train.py")
SUPERVISOR = ("inplace-agent", "run", "--", "torchrun", "train.py")


@pytest.mark.parametrize(
    ("fact", "words"),
    [
        (ended(9, command=GUARD, exitCode=128, reason="StartError"), "9 restarts: the image has no python3"),
        (ended(9, command=GUARD, exitCode=127), "9 restarts: the image has no python3"),
        (ended(9, command=GUARD, exitCode=127, epoch=1), "exit code 127, 9 restarts: not found"),
        (ended(9, command=GUARD, exitCode=128, reason="StartError", message=MESSAGE), MESSAGE),
        (ended(9, exitCode=137, reason="RestartingAllContainers"), "container worker, 9 restarts of the whole Pod"),
    ],
)
def test_the_program_that_the_image_lacks_is_named(fact: PodFact, words: str) -> None:
    """Where the runtime does not say it; 127 of a guard that has joined is of the worker's own command."""
    assert words in straggler_of("w-0-0", fact, 1, 2).detail


def test_a_restart_of_the_whole_pod_in_place_is_no_crash() -> None:
    """Kubelet's lastState of a group restart is 137 as well; a Pod that has joined is only behind."""
    fact = ended(9, exitCode=137, reason="RestartingAllContainers", epoch=1)
    assert straggler_of("w-0-0", fact, 1, 2).why is Why.BEHIND


@pytest.mark.parametrize(
    ("command", "code", "advice"),
    [
        (GUARD, 128, "the image has no python3 (container worker): correct the command or the image"),
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
