"""Whole lives of JobSets, with group restarts and limits, on the embedded API server under virtual time."""

import asyncio

import pytest

from inplace.common.wire import names as wire
from tests.controller.manifests import jobset, replicated_job
from tests.controller.rig import Rig

pytestmark = pytest.mark.virtual_time


async def test_a_restart_is_told_also_when_the_watch_beats_the_answer(rig: Rig) -> None:
    """Events and metrics of a restart are complete when the watch shows a status write before its answer."""
    rig.answer_latency_s = lambda request: 0.05 if request.path.split("?")[0].endswith("/status") else 0.0
    crew = await rig.started(jobset())
    await rig.meet(crew, 2)
    assert await crew.epochs() == (2, 1)
    assert len(await rig.events("GroupRestartStarted")) == 1
    assert len(await rig.events("GroupRestartFinished")) == 1
    assert b'outcome="finished"' in rig.controllers[0].metrics.text()


async def test_a_restart_of_many_costs_two_status_writes(rig: Rig) -> None:
    """400 announcements that arrive together are decided at once: one write deprecates, one syncs."""
    crew = await rig.started(jobset(jobs=[replicated_job(replicas=4, pods=100)]))
    await rig.settle(10.0)
    before = rig.writes("/jobsets/train/status")
    first, *rest = crew.pods.values()
    await rig.announce(crew, first, 2, 0.01)
    async with asyncio.TaskGroup() as group:
        for pod in rest:
            group.create_task(crew.announce(pod, 2))
    await rig.settle(0.1)
    assert await crew.epochs() == (2, 1)
    assert rig.writes("/jobsets/train/status") - before == 2


async def test_a_namespaced_controller_sees_no_other_namespace() -> None:
    """With --namespace every request names it."""
    rig = Rig()
    async with rig.running(rig.controller(namespace="default", leader_elect=False)):
        await rig.started(jobset())
    assert rig.requests
    assert all("/namespaces/default/" in request.path for request in rig.requests)


async def test_upstreams_agent_works_under_this_controller(rig: Rig) -> None:
    """A group of upstream's agents starts and restarts by attempts alone; the status has both encodings."""
    crew = await rig.with_pods(jobset())
    for attempt in (0, 1):
        for pod in crew.pods.values():
            await crew.annotate(pod, {wire.ATTEMPT: str(attempt)})
        await rig.settle()
        status = await crew.status()
        assert status["currentInPlaceRestartAttempt"] == attempt
        assert status["syncedEpoch"] == attempt + 1
