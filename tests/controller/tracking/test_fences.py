"""A Pod of a dead node: the group does not wait for its end, but until its agent must have ended its worker."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from inplace.common.jobset.jobset import JobSet
from inplace.common.jobset.kinds import Pod, PodStatus
from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from inplace.controller.plan.jobs import build_job
from inplace.controller.plan.problems.requests import bad_requests
from inplace.controller.tracking.memories import Fences
from inplace.controller.tracking.pods import fenced_within_s, read_pod
from tests.controller.manifests import jobset, replicated_job
from tests.controller.objects import lone_pod, parsed

PROMISE_S = 40


def test_a_promise_counts_from_the_status_that_ends_the_epoch() -> None:
    """Not from the Pod's deletion; and a status that lets an epoch run, or was lost, begins the count anew."""
    fences = Fences()
    assert fences.note_pod("a", PROMISE_S)
    assert not fences.note_pod("a", PROMISE_S)
    assert (fences.kept(1000.0), fences.next_in_s(1000.0)) == ((), None)
    fences.note_status(shows_over=True)
    assert (fences.kept(1000.0), fences.next_in_s(1010.0)) == ((), 30.0)
    assert fences.kept(1039.9) == ()
    assert (fences.kept(1040.0), fences.next_in_s(1040.0)) == (("a",), None)
    fences.note_status(shows_over=False)
    fences.note_status(shows_over=True)
    assert (fences.kept(1050.0), fences.kept(1090.0)) == ((), ("a",))
    fences.note_pod("a", None)
    assert fences.kept(1090.0) == ()


TAINTED = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}
UNHEARD = {"type": "Ready", "status": "False"}


def given_up(*conditions: KubeObject, deleted: bool = True, promise: str | None = "25") -> bool:
    """Say whether a Pod with these conditions is read as one of a dead node, whose worker ends by itself."""
    pod = leaving(promise, "2026-01-01T00:00:00Z" if deleted else None)
    status = msgspec.convert({"phase": "Running", "conditions": list(conditions)}, PodStatus)
    view = read_pod(msgspec.structs.replace(pod, status=status), ("workers", 0), current=True).view
    assert view is not None
    return view.given_up


def test_which_pods_are_given_up() -> None:
    """Not those whose kubelet ends them: it may let a worker save, and Ready=False has a reason then."""
    assert given_up(UNHEARD, TAINTED)
    assert not given_up(UNHEARD, TAINTED, deleted=False)
    assert not given_up(UNHEARD, TAINTED, promise=None)
    assert not given_up(TAINTED)
    assert not given_up(TAINTED, UNHEARD | {"reason": "ContainersNotReady"})
    assert not given_up(TAINTED | {"reason": "EvictionByEvictionAPI"}, UNHEARD)


@pytest.mark.parametrize("promise", [None, "", "soon", "0", "24", "-40", "99999999999"])
def test_a_text_that_no_agent_writes_promises_nothing(promise: str | None) -> None:
    """And no promise counts while the Pod is not being deleted: its agent may still join an epoch."""
    assert fenced_within_s(leaving(promise, "2026-01-01T00:00:00Z")) is None
    assert fenced_within_s(leaving("25", "2026-01-01T00:00:00Z")) == 25
    assert fenced_within_s(leaving("25", None)) is None


def leaving(promise: str | None, deleted_at: str | None) -> Pod:
    """Return a Pod with such a promise."""
    annotations = {} if promise is None else {wire.FENCED_WITHIN: promise}
    return lone_pod(metadata={"annotations": annotations, "deletionTimestamp": deleted_at})


def fenced_jobset(after: str | None, **job_spec: Any) -> JobSet:
    """Return a JobSet with that annotation."""
    annotations = {wire.FENCE_AFTER: after} if after is not None else {}
    manifest = jobset(jobs=[replicated_job(pods=1)], annotations=annotations)
    manifest["spec"]["replicatedJobs"][0]["template"]["spec"] |= job_spec
    return parsed(manifest)


@pytest.mark.parametrize(
    ("after", "changes"), [("15", True), ("600", True), ("14", False), ("601", False), ("soon", False), (None, False)]
)
def test_an_annotation_lets_kubernetes_replace_the_pods_of_a_dead_node(after: str | None, changes: bool) -> None:
    """The Job tolerates an unreachable node for no time, and replaces Pods that cannot end; a bad value is told."""
    parsed = fenced_jobset(after)
    spec = build_job(parsed, parsed.replicated_jobs[0], 0)["spec"]
    template = spec["template"]
    assert (spec["podReplacementPolicy"] == "TerminatingOrFailed") == changes
    assert template["metadata"]["annotations"].get(wire.FENCE_AFTER) == (after if changes else None)
    tolerated = [each for each in template["spec"].get("tolerations") or () if each.get("tolerationSeconds") == 0]
    assert [each["key"] for each in tolerated] == (["node.kubernetes.io/unreachable"] if changes else [])
    assert bool(list(bad_requests(parsed))) == (not changes and after is not None)


def test_beside_a_pod_failure_policy_the_job_stays_as_it_is() -> None:
    """Kubernetes refuses a Job with both, so the user is told."""
    rules = [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
    parsed = fenced_jobset("30", podFailurePolicy={"rules": rules})
    assert build_job(parsed, parsed.replicated_jobs[0], 0)["spec"]["podReplacementPolicy"] == "Failed"
    (problem,) = bad_requests(parsed)
    assert "podFailurePolicy: expected none beside inplace.dev/fence-after" in problem
