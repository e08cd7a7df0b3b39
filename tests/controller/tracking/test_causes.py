"""The causes of group restarts: read from Pods, kept in the status, reported in Events and metrics."""

from __future__ import annotations

from typing import Any

import pytest

from inplace.common.kube.resources import KubeObject
from inplace.controller.tracking.signs import SKEW_S_MAX, seconds_since
from tests.controller.crew import Crew
from tests.controller.manifests import jobset
from tests.controller.rig import Rig

pytestmark = pytest.mark.virtual_time

ENDED: dict[str, Any] = {
    "exitCode": 137,
    "reason": "OOMKilled",
    "message": "cuda out of memory",
    "finishedAt": "2023-11-14T22:13:20Z",
}
EXIT = {name: value for name, value in ENDED.items() if name != "message"} | {"lastLine": ENDED["message"]}


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


async def end_agent(crew: Crew, pod: str, ended: KubeObject) -> None:
    """Let a Pod's sidecar end."""
    agent = {"name": "agent", "state": {"terminated": ended}, "image": "agent:1", "imageID": "", "ready": False}
    await crew.set_pod(pod, initContainerStatuses=[agent | {"restartCount": 0}])


@pytest.mark.parametrize(
    ("finished_at", "seconds"),
    [("2023-11-14T22:13:19Z", 1.0), ("2023-11-14T22:13:25Z", None), ("2023-11-14T22:10:00Z", None), ("", None)],
)
def test_a_clock_that_cannot_be_right_is_not_believed(finished_at: str, seconds: float | None) -> None:
    """An end in the future or long ago is not used to measure the detection time."""
    assert seconds_since(finished_at, 1_700_000_000.0) == seconds
    assert SKEW_S_MAX < 200
