"""A Pod works once its worker of the running epoch was started; a group whose workers were not does not train."""

from __future__ import annotations

import pytest

from inplace.cli.group.pod_facts import PodFact
from inplace.cli.group.state import GroupState, group_state
from inplace.common.jobset.headline import GroupPhase
from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from inplace.simulator.cluster.manifests import held_by_probe
from tests.cli.facts import RUNS, explanation_of, pod, text_of
from tests.cli.injecting import example_of
from tests.cli.scenes import explained, jobset_of, kill, seen, synced, training

WAITS = {"waiting": {"reason": "PodInitializing"}}


def guarded(*pods: PodFact) -> GroupState:
    """Return the guarded example at epoch 2 with these Pods."""
    raw = jobset_of(example_of(len(pods)))
    raw["metadata"] |= {"uid": "u", "resourceVersion": "1", "namespace": "default"}
    return group_state(raw | {"status": wire.status_of_epochs(2, 1)}, pods)


def worked(index: int, *, agent: bool, worker: KubeObject = RUNS, phase: str = "Running") -> PodFact:
    """Return a Pod at epoch 2; its agent is ready or not."""
    agents = [{"name": "agent", "state": RUNS, "started": True, "ready": agent}]
    workers = [{"name": "worker", "state": worker, "ready": True}]
    statuses = {"phase": phase, "initContainerStatuses": agents, "containerStatuses": workers}
    return pod(index, 2, job="workers", status=statuses)


def test_a_guard_that_started_no_worker_does_not_train() -> None:
    """Its container runs, and the agent is not ready: explain names the Pod and does not say that the group trains."""
    pods = [worked(0, agent=True), worked(1, agent=False)]
    state = guarded(*pods)
    assert (state.phase, state.scopes[0].working, state.scopes[0].idle) == (
        GroupPhase.RUNNING,
        1,
        ["train-workers-0-1"],
    )
    text = text_of(explanation_of(state, pods))
    assert "all 2 Pods are at epoch 2; kubelet does not report the workers of 1 yet" in text
    assert "1 Pod: the epoch runs, and kubelet does not report its worker yet" in text
    assert "kubectl logs train-workers-0-1" in text
    assert "it trains" not in text
    assert "Nothing keeps it from training" not in text


@pytest.mark.parametrize(
    ("other", "working", "idle"),
    [
        (worked(1, agent=True), 2, 0),
        (worked(1, agent=True, worker=WAITS), 1, 1),
        (worked(1, agent=False, worker={"terminated": {"exitCode": 0}}, phase="Succeeded"), 1, 0),
    ],
    ids=["it works", "its container waits", "it completed"],
)
def test_who_works(other: PodFact, working: int, idle: int) -> None:
    """A Pod that completed neither works nor is waited for."""
    (scope,) = guarded(worked(0, agent=True), other).scopes
    assert (scope.working, len(scope.idle)) == (working, idle)


@pytest.mark.virtual_time
@pytest.mark.parametrize("mode", ["containers", "probe", "supervisor"])
async def test_every_mode_works(mode: str) -> None:
    """In each mode the Pods of a group that trains count as working, before and after a restart."""
    name = "train-supervisor.yaml" if mode == "supervisor" else "train.yaml"
    *others, jobset = example_of(2, name)
    group = [*others, held_by_probe(jobset) if mode == "probe" else jobset]
    async with training(2, group=group) as cluster:
        for epoch in (1, 2):
            await synced(cluster, epoch, 2)
            await cluster.clock.sleep(12)  # a readiness probe's period, and more
            assert (await seen(cluster)).scopes[0].working == 2
            assert f"it runs; no rank reports steps: all 2 Pods are at epoch {epoch}" in text_of(
                await explained(cluster)
            )
            if epoch == 1:
                kill(cluster)
