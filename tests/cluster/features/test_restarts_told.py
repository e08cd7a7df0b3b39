"""Reports of a group restart, and a person's requests: causes, waiting barriers, deadlines, restarts."""

from __future__ import annotations

from typing import Any, Final

import pytest

from inplace.common.kube.resources import PODS
from inplace.common.wire import names as wire
from testbed.waiting import eventually
from tests.cluster.features.served import ServedController
from tests.cluster.features.stage import Stage
from tests.controller.manifests import jobset

pytestmark = pytest.mark.asyncio(loop_scope="session")

JOB: Final = "train-workers-0"
UNSCHEDULABLE: Final = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/8 nodes are available: 8 Insufficient google.com/tpu. preemption: not eligible.",
}


async def running(stage: Stage, **annotations: str) -> list[str]:
    """Bring a group of two to its first epoch, with running workers; return its Pods."""
    manifest = jobset()
    manifest["metadata"]["annotations"] = annotations
    await stage.start(manifest)
    await stage.make_pods()
    await stage.announce_all(1)
    await eventually(stage.epochs, (1, 0))
    for pod in stage.pods.values():
        await stage.set_worker(pod)
    return list(stage.pods.values())


async def last(stage: Stage) -> dict[str, Any]:
    """Return status.lastGroupRestart without its times."""
    found = (await stage.status()).get(wire.LAST_GROUP_RESTART) or {}
    return {name: value for name, value in found.items() if name not in ("startedAt", "deprecatedAt", "syncedAt")}


async def is_over(stage: Stage) -> bool:
    """Return whether the last group restart has ended."""
    return "syncedAt" in ((await stage.status()).get(wire.LAST_GROUP_RESTART) or {})


async def asked(stage: Stage, request: str) -> None:
    """Ask for a restart, as kubectl annotate does."""
    await stage.edit({"metadata": {"annotations": {wire.RESTART_REQUESTED: request}}})


async def test_what_failed_first(stage: Stage, controller: ServedController) -> None:
    """Status, condition and metrics name the Pod, its container and its exit code, from first sign to sync."""
    first, _ = await running(stage)
    await stage.set_worker(first, exit_code=137)
    await eventually(stage.epochs, (1, 1))
    failure = {"pod": first, "container": "worker", "exitCode": 137}
    found = await last(stage)
    assert (found["epoch"], found["trigger"]) == (2, "worker_exit")
    assert failure.items() <= found["firstFailure"].items()
    words = await stage.words("InPlaceRestarting")
    assert words is not None
    assert words[:2] == ("True", "WorkerExit")
    assert f"pod {first}: container worker killed by SIGKILL (137" in words[2]
    assert not await is_over(stage)
    await stage.announce_all(2)
    await eventually(stage.epochs, (2, 1))
    assert await is_over(stage)
    assert ((await stage.words("InPlaceRestarting")) or ("",))[0] == "False"
    series = f'inplace_first_failure_info{{namespace="{stage.namespace}",jobset="train",pod="{first}"'
    await eventually(lambda: series in controller.metrics(), True)  # the metrics text is cached for a second


async def test_an_eviction_does_not_count(stage: Stage) -> None:
    """A Pod that the eviction API removes exempts the epoch after it."""
    lost, _ = await running(stage)
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": lost}}
    await stage.client.raw("POST", PODS.path(stage.namespace, lost, subresource="eviction"), body=body)
    stage.pods = {slot: name for slot, name in stage.pods.items() if name != lost}
    await stage.make_pods()
    await stage.announce(stage.pods[JOB, 0], 2)
    await eventually(stage.epochs, (1, 1))  # only now does a real agent's peer announce 2
    await stage.announce_all(2)
    await eventually(stage.epochs, (2, 1))
    found = await last(stage)
    assert (found["trigger"], found["firstFailure"]["reason"]) == ("disrupted", "EvictionByEvictionAPI")
    assert (await stage.status())[wire.EXEMPT_EPOCHS] == 1


async def test_a_deadline(stage: Stage) -> None:
    """After the deadline a Warning names the missing Pods and why, and their Jobs are recreated, uncounted."""
    deadline = {wire.BARRIER: "deadline=2,action=RecreateJobs"}
    first, second = await running(stage, **deadline)
    uid = (await stage.jobs())[JOB]["metadata"]["uid"]
    status = {"phase": "Pending", "conditions": [UNSCHEDULABLE]}
    await stage.client.patch(PODS, stage.namespace, second, {"status": status}, subresource="status")
    await stage.announce(first, 2)
    await stage.says_soon("BarrierDeadlineExceeded")
    missing = f"1/2 at epoch 2; waiting for {JOB}-1 (Pending: 8 Insufficient google.com/tpu)"
    assert missing in (await stage.events())["BarrierDeadlineExceeded"][1]

    async def is_new() -> bool:
        await stage.collect_garbage()
        job = (await stage.jobs()).get(JOB)
        return job is not None and job["metadata"]["uid"] != uid

    await eventually(is_new, True)
    assert (await stage.status())["restarts"] == 0


async def test_a_barrier_that_waits(stage: Stage) -> None:
    """The condition names the missing Pods; a deadline without other effects sets it at once."""
    first, second = await running(stage, **{wire.BARRIER: "1"})
    await stage.announce(first, 2)
    message = f"1/2 at epoch 2; waiting for {JOB}-1 (Pending: announced epoch 1)"

    async def is_told() -> bool:
        words = await stage.words("BarrierWaiting")
        return words is not None and words[:2] == ("True", "PodsMissing") and f"{JOB}-1 (" in words[2]

    await eventually(is_told, True)
    assert message.split("(")[0] in ((await stage.words("BarrierWaiting")) or ("", "", ""))[2]
    await stage.announce(second, 2)
    await eventually(stage.epochs, (2, 1))
    assert ((await stage.words("BarrierWaiting")) or ("",))[0] == "False"


async def test_requests_that_mean_nothing(stage: Stage) -> None:
    """An unreadable request is a SpecProblem with a message, and restarts nothing."""
    await running(stage)
    await asked(stage, "no spaces, please")

    async def problem() -> bool:
        words = await stage.words("SpecProblem")
        return words is not None and "expected an id of 1 to 63 letters" in words[2]

    await eventually(problem, True)
    assert await stage.epochs() == (1, 0)
