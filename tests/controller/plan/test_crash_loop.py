"""A group that fails again and again waits longer and longer; the whole controller, as Pods announce."""

from __future__ import annotations

import pytest

from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from tests.controller.crew import Crew
from tests.controller.manifests import jobset, replicated_job
from tests.controller.rig import Rig

pytestmark = pytest.mark.virtual_time


def failing(**annotations: str) -> KubeObject:
    """Return a JobSet of two Pods with many restarts."""
    return jobset(restarts_max=20, jobs=[replicated_job(pods=2)], annotations=annotations)


async def fail(rig: Rig, crew: Crew, told: str = "") -> int:
    """Let all Pods announce the next epoch after a failure; return it."""
    synced, _ = await crew.epochs()
    for pod in crew.pods.values():
        phases = {wire.PHASES: f"v1,view=64,at={synced}{told}"}
        await crew.annotate(pod, wire.epoch_annotations(synced + 1) | phases)
    await rig.settle(0.1)
    return synced + 1


async def waited_s(rig: Rig, crew: Crew, epoch: int) -> float:
    """Return how long it takes until an epoch begins, in steps of half a second."""
    for step in range(800):
        if (await crew.epochs())[0] == epoch:
            return step / 2
        await rig.settle(0.5)
    raise AssertionError(f"epoch {epoch} did not begin: {await crew.status()}")


async def test_each_restart_in_vain_waits_twice_as_long(rig: Rig) -> None:
    """The first failure never waits; then 5, 10 and 20 s, told by an Event; S is held back, D is not."""
    crew = await rig.started(failing())
    waits = []
    for _ in range(4):
        epoch = await fail(rig, crew)
        assert await crew.epochs() in ((epoch, epoch - 2), (epoch, epoch - 1), (epoch - 1, epoch - 1))
        waits.append(await waited_s(rig, crew, epoch))
    assert waits[0] == 0.0
    assert waits[1:] == pytest.approx([5.0, 10.0, 20.0], abs=1.0)
    found = (await crew.status())[wire.CRASH_LOOP]
    assert (found["failures"], found["epoch"]) == (4, 5)
    assert any("crash loop: 3 restarts in " in str(event.get("note")) for event in await rig.events("CrashLoop"))


async def test_the_wait_survives_the_controller(rig: Rig) -> None:
    """Another controller waits for the rest, and not from the beginning."""
    crew = await rig.started(failing(**{wire.FAILURES: "backoff=100,backoff-max=100"}))
    await fail(rig, crew)
    epoch = await fail(rig, crew)
    await rig.settle(40.0)
    assert await crew.epochs() == (epoch - 1, epoch - 1)
    await rig.change_controller()
    await rig.settle(50.0)
    assert await crew.epochs() == (epoch - 1, epoch - 1)
    assert await waited_s(rig, crew, epoch) == pytest.approx(10.0, abs=2.0)


async def test_progress_forgives() -> None:
    """Higher steps, or a minute without steps, begin a new count; the same step does not."""
    rig = Rig()
    async with rig.running():
        crew = await rig.started(failing())
        for step in (5, 6, 7):
            assert await waited_s(rig, crew, await fail(rig, crew, f",quiet=1,step={step}")) == 0.0
        assert await waited_s(rig, crew, await fail(rig, crew, ",quiet=1,step=7")) > 4.0
        assert await waited_s(rig, crew, await fail(rig, crew, ",quiet=1,step=8")) == 0.0
    rig = Rig()
    async with rig.running():
        crew = await rig.started(failing())
        for _ in range(3):
            assert await waited_s(rig, crew, await fail(rig, crew)) == 0.0
            await rig.settle(61.0)


async def test_a_person_ends_the_count_and_zero_turns_it_off() -> None:
    """A restart that is asked for never waits, and the failure after it is the first one; "0" never waits."""
    rig = Rig()
    async with rig.running():
        crew = await rig.started(failing())
        await waited_s(rig, crew, await fail(rig, crew))
        await rig.annotate({wire.RESTART_REQUESTED: "a"}, 0.5)
        assert await waited_s(rig, crew, await fail(rig, crew)) == 0.0
        assert await waited_s(rig, crew, await fail(rig, crew)) == 0.0
    rig = Rig()
    async with rig.running():
        crew = await rig.started(failing(**{wire.FAILURES: "backoff=0"}))
        for _ in range(4):
            assert await waited_s(rig, crew, await fail(rig, crew)) == 0.0


async def test_a_rank_that_completes_early_is_named(rig: Rig) -> None:
    """A Pod completes, then a peer fails: the trigger and the first failure name the one that completed; it counts."""
    crew = await rig.started(failing())
    early, peer = crew.pods.values()
    await crew.set_phase(early, "Succeeded")
    await rig.settle()
    assert await crew.epochs() == (1, 0)
    await rig.set_worker(crew, peer, exit_code=1)
    assert await crew.epochs() == (1, 1)
    last = (await crew.status())[wire.LAST_GROUP_RESTART]
    assert last["trigger"] == "completed_early"
    assert last["firstFailure"]["pod"] == early
    assert f"then pod {peer}" in last["firstFailure"]["message"]
    (event,) = await rig.events("CompletedPodsRecreated")
    assert f"pod {early} completed (exit code 0)" in event["note"]
    assert "train-workers-0; what their emptyDir volumes held is gone" in event["note"]
