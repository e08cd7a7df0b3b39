"""A controller's terms as the leader: how one ends, and how another controller goes on."""

import asyncio

import pytest

from inplace.common.kube.resources import LEASES
from inplace.controller.api.leader import LeadershipLostError
from tests.common.kube.answers import refusal
from tests.controller.manifests import jobset
from tests.controller.rig import Rig

pytestmark = pytest.mark.virtual_time


async def test_stopping_finishes_and_releases_the_lease() -> None:
    """After `stop` the run ends at once, the Lease has no holder, and a successor leads without waiting."""
    rig = Rig()
    first, second = rig.controller(), rig.controller()
    async with asyncio.TaskGroup() as group:
        server = group.create_task(rig.server.run())
        running = group.create_task(first.run())
        await rig.settle()
        crew = await rig.with_pods(jobset())
        stopped_s = rig.clock.monotonic_s()
        first.stop()
        await running
        assert rig.clock.monotonic_s() - stopped_s < 0.1
        lease = await rig.admin.get(LEASES, "default", "inplace-controller")
        assert lease["spec"]["holderIdentity"] == ""
        successor = group.create_task(second.run())
        await rig.meet(crew, 1, 0.5)
        assert await crew.epochs() == (1, 0)
        successor.cancel()
        server.cancel()


async def test_two_controllers_take_turns() -> None:
    """When the leader of two is killed, the other continues the restart that was under way."""

    async def _vanish(rig: Rig, task: asyncio.Task[None]) -> None:
        rig.fault = lambda _: refusal(503, "ServiceUnavailable")
        task.cancel()
        await rig.settle(0.1)
        rig.fault = lambda _: None

    rig = Rig()
    first, second = rig.controller(), rig.controller()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(work) for work in (rig.server.run(), first.run(), second.run())]
        await rig.settle()
        assert (first.is_leader, second.is_leader) == (True, False)
        crew = await rig.started(jobset())
        await rig.announce(crew, next(iter(crew.pods.values())), 2, 0.1)
        assert await crew.epochs() == (1, 1)
        await _vanish(rig, tasks[1])
        await rig.meet(crew, 2, 30.0)
        assert second.is_leader
        assert await crew.epochs() == (2, 1)
        for task in tasks:
            task.cancel()


async def test_a_controller_that_loses_the_lease_as_it_is_cancelled_ends() -> None:
    """A controller that is cancelled as it loses the Lease ends, although a failing TaskGroup drops cancellations."""
    rig = Rig()
    controller = rig.controller(leader_elect=True)
    running: asyncio.Task[None]
    terms = []

    async def lead(*_: object) -> None:
        terms.append(1)
        assert len(terms) == 1, "it was cancelled in its first term"

        async def lose() -> None:
            asyncio.get_running_loop().call_soon(running.cancel)
            raise LeadershipLostError("somebody else's")

        async with asyncio.TaskGroup() as group:
            group.create_task(lose())
            await asyncio.sleep(1.0)

    controller._lead = lead  # type: ignore[assignment,method-assign]
    serving = asyncio.create_task(rig.server.run())
    running = asyncio.create_task(controller.run())
    await asyncio.wait({running}, timeout=60.0)
    serving.cancel()
    assert running.cancelled()
