"""A JobSet whose epochs end without progress fails: the whole controller, steps as Pods announce them."""

from __future__ import annotations

import pytest

from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from tests.controller.crew import Crew
from tests.controller.manifests import jobset, replicated_job
from tests.controller.rig import Rig

pytestmark = pytest.mark.virtual_time


def judged(limit: str, **options: str) -> KubeObject:
    """Return a JobSet with a limit."""
    annotations = {wire.FAILURES: f"backoff=0,no-progress={limit}"} | options
    jobs = [replicated_job("left", pods=1), replicated_job("right", pods=1)]
    return jobset(restarts_max=20, jobs=jobs, annotations=annotations)


async def restart(rig: Rig, crew: Crew, *told: str) -> None:
    """Let all Pods announce the next epoch, the first one first, with what they know of their workers."""
    synced, _ = await crew.epochs()
    for pod, text in zip(crew.pods.values(), told, strict=True):
        await crew.annotate(pod, wire.epoch_annotations(synced + 1) | {wire.PHASES: f"v1,view=64,at={synced}{text}"})
        await rig.settle(0.1)


async def failed(crew: Crew) -> str | None:
    """Return the message of NoProgress; None while the JobSet runs."""
    condition = await crew.find_condition("Failed")
    if condition is None:
        return None
    assert condition["reason"] == "NoProgress"
    return str(condition["message"])


async def test_three_epochs_at_one_step_fail_the_jobset(rig: Rig) -> None:
    """The state is in the status: another controller goes on with it; the message names steps and failures."""
    crew = await rig.started(judged("3"))
    before = rig.writes("/jobsets/train/status")
    await restart(rig, crew, ",quiet=1,step=101", ",quiet=1,step=100")
    await restart(rig, crew, ",quiet=1,step=100", ",quiet=1,step=100")
    assert rig.writes("/jobsets/train/status") == before + 4
    await restart(rig, crew, ",quiet=1,step=40", ",quiet=1,step=41")
    assert await failed(crew) is None
    await rig.change_controller()
    await rig.settle(20.0)
    await restart(rig, crew, ",quiet=1,step=99", ",quiet=1,step=100")
    message = await failed(crew)
    assert message is not None
    assert "3 epochs in a row without progress (the highest step ever is 100): epoch 2 " in message
    for step, epoch in ((100, 2), (40, 3), (99, 4)):
        assert f"epoch {epoch} ended at step {step} (pod train-left-0-0-00001)" in message
    assert await crew.epochs() == (4, 4)


async def test_progress_forgives(rig: Rig) -> None:
    """Each higher step begins a new count."""
    crew = await rig.started(judged("2"))
    for step in (5, 5, 6, 6, 7, 7, 8):
        await restart(rig, crew, f",quiet=1,step={step}", f",quiet=1,step={step}")
    assert await failed(crew) is None
    loop = (await crew.status())[wire.CRASH_LOOP]
    assert (loop["bestStep"], loop.get("failedEpochs")) == (8, None)


@pytest.mark.slow
async def test_short_epochs_fail_a_jobset_without_steps(rig: Rig) -> None:
    """Two epochs of less than 60 s in a row; a long one between them forgives, and so does a request."""
    crew = await rig.started(judged("2,short=60"))
    for wait_s in (10.0, 70.0, 10.0):
        await rig.settle(wait_s)
        await restart(rig, crew, "", "")
    await rig.annotate({wire.RESTART_REQUESTED: "mine"}, 0.1)
    for _ in range(2):
        await restart(rig, crew, "", "")
        assert await failed(crew) is None
        await rig.settle(20.0)
    await restart(rig, crew, "", "")
    assert "2 epochs in a row without progress: epoch 5 ended (pod train-left-0-0-00001), epoch 6 ended (" in (
        await failed(crew) or ""
    )


@pytest.mark.slow
async def test_each_scope_has_its_own_steps(rig: Rig) -> None:
    """A scope that makes no progress fails the JobSet, whatever the other one does."""
    crew = await rig.started(judged("2", **{wire.RESTART_SCOPE: "ReplicatedJob"}))
    left, right = crew.pods.values()
    for epoch in (2, 3, 4):
        assert await failed(crew) is None
        for pod, step in ((right, 100 * epoch), (left, 7)):
            told = {wire.PHASES: f"v1,view=64,at={epoch},quiet=1,step={step}"}  # a text tells once
            await crew.annotate(pod, wire.epoch_annotations(epoch) | told)
            await rig.settle(0.1)
    assert "the highest step ever is 7" in (await failed(crew) or "")


async def test_without_the_annotation_nothing_is_written(rig: Rig) -> None:
    """No field; a value that cannot be read is told, and judges nothing."""
    crew = await rig.started(judged("soon"))
    for _ in range(3):
        await restart(rig, crew, ",quiet=1,step=5", ",quiet=1,step=5")
    assert await failed(crew) is None
    assert "[inplace.dev/failures].no-progress: expected" in (await crew.condition("SpecProblem"))["message"]
