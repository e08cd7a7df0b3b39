"""A container that starts and ends at once, again and again, is named with its exit code; nobody looks for rights."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from inplace.cli.group.pod_facts import PodFact
from inplace.cli.group.straggler import Why, straggler_of
from inplace.cli.status.advice import ADVICE

NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z"
MESSAGE = 'exec: "python3": executable file not found in $PATH'


def pod(restarts: int, *, again: bool = True, **ended: Any) -> PodFact:
    """Return a Pod whose worker's container ended like this, and runs again."""
    ended = {"startedAt": NOW, "finishedAt": NOW, "reason": "Error"} | ended
    state = {"running": {"startedAt": LATER}} if again else {"terminated": ended}
    worker = {"name": "worker", "restartCount": restarts, "state": state, "lastState": {"terminated": ended}}
    agent = {"name": "inplace-agent", "restartCount": restarts, "state": {"running": {"startedAt": NOW}}}
    status = {"phase": "Running", "containerStatuses": [worker], "initContainerStatuses": [agent]}
    return msgspec.convert(
        {
            "metadata": {"name": "w-0-0-x", "uid": "u", "resourceVersion": "1"},
            "spec": {"nodeName": "n"},
            "status": status,
        },
        PodFact,
    )


@pytest.mark.parametrize("again", [True, False])
@pytest.mark.parametrize(
    ("ended", "why", "words"),
    [
        ({"exitCode": 127}, Why.NOT_FOUND, "container worker, exit code 127, 9 restarts: not found"),
        ({"exitCode": 126}, Why.NOT_FOUND, "container worker, exit code 126, 9 restarts: not executable"),
        ({"exitCode": 128, "reason": "StartError", "message": MESSAGE}, Why.NOT_FOUND, f"9 restarts: {MESSAGE}"),
        ({"exitCode": 3}, Why.AGENT_REFUSES, "exit code 3 (barrier unavailable)"),
        ({"exitCode": 7}, Why.CRASHING, "container worker, exit code 7, 9 restarts"),
    ],
)
def test_it_is_named(again: bool, ended: dict[str, Any], why: Why, words: str) -> None:
    """Whether it runs at this moment or not; the advice has a command, and no word of rights."""
    late = straggler_of("w-0-0", pod(9, again=again, **ended), 0, 1)
    assert (late.why, words in late.detail) == (why, True), late.detail
    assert "rights" not in ADVICE[late.why]
    assert "kubectl" in ADVICE[late.why]


@pytest.mark.parametrize(
    "fact",
    [
        pod(2, exitCode=7),
        pod(9, exitCode=88),
        pod(9, exitCode=143),
        pod(9, exitCode=7, finishedAt=LATER),
        pod(9, exitCode=0),
    ],
    ids=["too few", "a restart", "ended for one", "it worked for long", "it completed"],
)
def test_other_ends_say_nothing(fact: PodFact) -> None:
    """Ends that group restarts bring about, and those after work."""
    assert straggler_of("w-0-0", fact, 0, 1).why is Why.SILENT
