"""A Pod whose completion shows AFTER its peers' failure was told is named first, if it ended by itself."""

from __future__ import annotations

from typing import Any

import pytest

from inplace.common.kube.timestamps import precise_time
from inplace.common.wire import names as wire
from inplace.common.wire.last_line import last_line_text
from inplace.common.wire.worker_failure import WorkerFailure, failure_text
from tests.controller.manifests import jobset, replicated_job
from tests.controller.rig import Rig

pytestmark = pytest.mark.virtual_time
GUARD = ["python3", "/var/run/inplace/inplace-agent", "guard", "--", "python3", "train.py"]
BEFORE, AFTER = "2000-01-01T00:00:00Z", "2100-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("command", "phase", "ended_at", "code", "named"),
    [
        (GUARD, "Running", BEFORE, 0, True),
        (["sleep"], "Succeeded", BEFORE, 0, True),
        (["sleep"], "Running", BEFORE, 0, True),
        (None, "Running", BEFORE, 0, False),
        (GUARD, "Running", AFTER, 0, False),
        (GUARD, "Running", BEFORE, 143, False),
    ],
    ids=["guarded", "succeeded", "guarded by the controller", "perhaps stopped", "after the failure", "stopped"],
)
async def test_a_late_completion_is_named(
    rig: Rig, command: list[str] | None, phase: str, ended_at: str, code: int, named: bool
) -> None:
    """The peer's agent tells first; the entry of the restart names the Pod that completed once the group is back."""
    manifest = jobset(restarts_max=9, jobs=[replicated_job("workers", pods=2)])
    pod_spec = manifest["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    if command is None:  # the agent's container is the user's own, and the worker has no guard
        pod_spec["initContainers"] = [{"name": "agent", "image": "agent:1", "command": ["inplace-agent"]}]
    else:
        pod_spec["containers"][0]["command"] = command
    crew = await rig.started(manifest)
    early, peer = crew.pods.values()
    await rig.tell(crew, peer, failure_text(WorkerFailure(1, 1, rig.clock.wall_s())), 1.0)
    assert await crew.epochs() == (1, 1)
    ended: dict[str, Any] = {"exitCode": code, "reason": "Completed", "finishedAt": ended_at}
    statuses = [{"name": "worker", "state": {"terminated": ended}}]
    await crew.set_pod(early, phase=phase, containerStatuses=statuses)
    await rig.settle()
    if phase == "Running":
        await rig.meet(crew, 2)
        assert await crew.epochs() == (2, 1)
    last = (await crew.status())[wire.LAST_GROUP_RESTART]
    trigger, pod = ("completed_early", early) if named else ("worker_exit", peer)
    assert (last["trigger"], last["firstFailure"]["pod"]) == (trigger, pod)


@pytest.mark.parametrize(
    ("line", "later_s", "named"),
    [
        ("RuntimeError: Connection closed by peer", 0, True),
        ("RuntimeError: Connection closed by peer", 1, True),
        ("RuntimeError: Connection closed by peer", 5, False),
        ("ValueError: bad sample", 0, False),
        ("", 0, False),
    ],
)
async def test_about_the_second_of_a_completion_the_words_decide(
    rig: Rig, line: str, later_s: int, *, named: bool
) -> None:
    """Ranks that all end at their last step are no reason for the one that fails; that a peer is gone says they are.

    A process closes its sockets some time before it has ended.
    """
    crew = await rig.started(jobset(restarts_max=9, jobs=[replicated_job("workers", pods=2)]))
    early, peer = crew.pods.values()
    failed_s = float(int(rig.clock.wall_s())) + 0.5
    told = {wire.PHASES: "v1,at=1,code=1", wire.LAST_LINE: last_line_text(1, failed_s, line)}
    await crew.annotate(peer, wire.epoch_annotations(2) | told)
    ended = {"exitCode": 0, "reason": "Completed", "finishedAt": precise_time(failed_s + later_s)[:19] + "Z"}
    await crew.set_pod(early, phase="Succeeded", containerStatuses=[{"name": "worker", "state": {"terminated": ended}}])
    await rig.settle()
    last = await crew.last_restart()
    expected = ("completed_early", early) if named else ("worker_exit", peer)
    assert (last["trigger"], last["firstFailure"]["pod"]) == expected


@pytest.mark.parametrize(
    ("phases", "policy", "named"),
    [
        ("v1,at=1,code=0", "All", True),
        ("v1,at=1,code=0", "Any", False),
        ("v1,at=1", "All", False),
        ("v1,at=1,code=256", "All", False),
        ("code=0", "All", False),
    ],
    ids=["told", "one is enough", "not told", "another number", "garbage"],
)
async def test_a_completion_that_kubelet_never_saw_is_named(rig: Rig, phases: str, policy: str, *, named: bool) -> None:
    """The Pod restarts in place at once, and its next announcement says so: of that restart, and no other."""
    manifest = jobset(restarts_max=9, jobs=[replicated_job("workers", pods=2)])
    manifest["spec"]["successPolicy"] = {"operator": policy}
    crew = await rig.started(manifest)
    early, peer = crew.pods.values()
    for epoch, told in ((1, phases), (2, "v1,at=2")):
        await rig.tell(crew, peer, failure_text(WorkerFailure(epoch, 1, rig.clock.wall_s())), 1.0)
        await crew.annotate(early, wire.epoch_annotations(epoch + 1) | {wire.PHASES: told})
        await crew.annotate(peer, wire.epoch_annotations(epoch + 1))
        await rig.settle()
        assert await crew.epochs() == (epoch + 1, epoch)
        last = (await crew.status())[wire.LAST_GROUP_RESTART]
        expected = ("completed_early", early) if named and epoch == 1 else ("worker_exit", peer)
        assert (last["trigger"], last["firstFailure"]["pod"]) == expected


async def test_an_initializer_that_completed_is_no_reason(rig: Rig) -> None:
    """Others waited for its completion (dependsOn): a worker that fails later is named, and not the initializer."""
    trainer = replicated_job("trainer", pods=1) | {"dependsOn": [{"name": "download", "status": "Complete"}]}
    crew = await rig.started(jobset(restarts_max=9, jobs=[replicated_job("download", pods=1), trainer]))
    (initializer,) = crew.pods.values()
    ended = {"exitCode": 0, "reason": "Completed", "finishedAt": BEFORE}
    statuses = [{"name": "worker", "state": {"terminated": ended}}]
    await crew.set_pod(initializer, phase="Succeeded", containerStatuses=statuses)
    await rig.finish_job(crew, "train-download-0", "Complete")
    await crew.make_pods()
    worker = crew.pods["train-trainer-0", 0]
    await crew.announce(worker, 2)
    await rig.set_worker(crew, worker, run=2)
    await rig.tell(crew, worker, failure_text(WorkerFailure(2, 1, rig.clock.wall_s())), 1.0)
    await crew.announce(worker, 3)
    await rig.settle()
    last = await crew.last_restart()
    assert (last["trigger"], last["firstFailure"]["pod"]) == ("worker_exit", worker)
