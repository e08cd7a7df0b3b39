"""Each index of a group backs off alone, and one whose Pod joined is forgiven what it failed before."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from inplace.common.injection.index_backoff import FIELD, next_pod_words
from inplace.common.kube.resources import PODS, KubeObject
from inplace.common.protocol.bounds import INT32_MAX
from inplace.common.wire import names as wire
from inplace.controller.plan.jobs import build_job
from tests.controller.manifests import jobset, replicated_job
from tests.controller.objects import parsed
from tests.controller.rig import Rig

FIRST = "train-workers-0"
ENDED = "2026-01-01T00:00:00Z"
FAIL_INDEX = {"rules": [{"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [42]}}]}


def job_spec(**changes: Any) -> KubeObject:
    """Return the spec of the Job that is built of a template with changes; None takes a field away."""
    manifest = jobset(jobs=[replicated_job(pods=2)])
    spec = manifest["spec"]["replicatedJobs"][0]["template"]["spec"]
    spec["template"]["spec"]["restartPolicy"] = changes.pop("restart_policy", "Never")
    spec |= changes
    read = parsed(deepcopy(manifest))
    found: KubeObject = build_job(read, read.replicated_jobs[0], 0)["spec"]
    return found


@pytest.mark.parametrize(
    ("changes", "seen"),
    [
        ({}, INT32_MAX),
        ({FIELD: 3}, 3),
        ({"restart_policy": "OnFailure"}, None),
        ({"completionMode": "NonIndexed"}, None),
        ({"podFailurePolicy": FAIL_INDEX}, None),
    ],
    ids=["plain", "the user's own", "OnFailure", "NonIndexed", "FailIndex"],
)
def test_a_job_of_a_group_has_a_backoff_for_each_index(changes: KubeObject, seen: int | None) -> None:
    """Where the API takes it, and the user neither set a limit nor lets an index fail for good."""
    assert job_spec(**changes).get(FIELD) == seen


@pytest.mark.parametrize(
    ("failures", "ignored", "words"),
    [
        ("0", None, "its Job makes the next one at 2026-01-01T00:00:10Z, 10 s after its end"),
        ("1", "1", "its Job makes the next one at 2026-01-01T00:00:40Z, 40 s after its end"),
        ("9" * 200, None, "its Job makes the next one at 2026-01-01T00:10:00Z, 600 s after its end"),
        ("x", "-1", "its Job makes the next one at 2026-01-01T00:00:10Z, 10 s after its end"),
        (None, "3", ""),
    ],
)
def test_the_time_of_the_next_pod_is_told(failures: str | None, ignored: str | None, words: str) -> None:
    """By what the Pod that ended says of those before it; a Job with one back-off for all says nothing."""
    assert next_pod_words(failures, ignored, ["2025-12-31T23:59:59Z", None, "soon", ENDED]) == words


def test_without_an_end_nothing_is_told() -> None:
    """A Pod that was never seen to end has no time to count from."""
    assert next_pod_words("0", None, [None]) == ""


async def failures(rig: Rig, pod: str) -> tuple[str | None, str | None]:
    """Return what a Pod says of those of its index that failed before."""
    annotations = (await rig.admin.get(PODS, "default", pod))["metadata"].get("annotations") or {}
    return annotations.get(wire.INDEX_FAILURES), annotations.get(wire.INDEX_FAILURES_IGNORED)


@pytest.mark.virtual_time
async def test_a_pod_that_joined_is_forgiven(rig: Rig) -> None:
    """One write, once its group has it; not before, and none for a Pod whose index never failed."""
    crew = await rig.with_pods(jobset(jobs=[replicated_job(pods=2)]))
    await crew.annotate(crew.pods[FIRST, 1], {wire.INDEX_FAILURES: "0"})
    await rig.meet(crew, 1)
    await crew.remove(crew.pods[FIRST, 0])
    replaced = await crew.replace(FIRST, 0)
    await crew.annotate(replaced, {wire.INDEX_FAILURES: "3", wire.INDEX_FAILURES_IGNORED: "2"})
    await rig.settle()
    assert await failures(rig, replaced) == ("3", "2")
    await rig.meet(crew, 2)
    assert await failures(rig, replaced) == (None, None)
    assert await failures(rig, crew.pods[FIRST, 1]) == ("0", None)
    assert [rig.writes(pod) for pod in (replaced, crew.pods[FIRST, 1])] == [1, 0]


@pytest.mark.virtual_time
async def test_a_pod_that_is_gone_is_forgotten(rig: Rig) -> None:
    """No later pass writes to it."""
    crew = await rig.with_pods(jobset(jobs=[replicated_job(pods=2)]))
    await rig.meet(crew, 1)
    pod = crew.pods[FIRST, 0]
    await crew.annotate(pod, {wire.INDEX_FAILURES: "3"})
    await crew.remove(pod)
    await rig.annotate({wire.RESTART_REQUESTED: "again"}, 10.0)
    assert rig.writes(pod) == 0
