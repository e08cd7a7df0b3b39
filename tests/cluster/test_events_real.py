"""Events of a real kube-apiserver: what a worker with its agent's token can make the controller write."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from inplace.common.kube.client import KubeClient
from inplace.common.kube.resources import EVENTS
from inplace.common.wire import names as wire
from inplace.controller.api.events import BURST
from testbed.control_plane import ControlPlane
from testbed.waiting import eventually
from tests.cluster.test_controller_real import admin, running, submit  # noqa: F401 - a fixture among them

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.attack]

PATCHES = 400  # the attack that was tried made 1,251, and as many Events


async def test_texts_that_cannot_be_read_make_a_burst_of_events(
    control_plane: ControlPlane,
    admin: KubeClient,  # noqa: F811
    namespace: str,
) -> None:
    """400 texts that are no epoch are 25 Events; the group's restart after them is told."""
    async with running(control_plane, namespace):
        crew = await submit(admin, namespace)
        await crew.announce_all(1)
        await eventually(crew.epochs, (1, 0))
        first, second = crew.pods.values()
        for number in range(PATCHES):
            await crew.annotate(first, {wire.NOTICE: f"no notice, {number}"})
        await crew.announce(second, 2)
        await eventually(crew.epochs, (1, 1))
        await crew.announce(first, 2)
        await eventually(crew.epochs, (2, 1))

        async def told() -> Counter[str]:
            return Counter(event["reason"] for event in (await admin.list(EVENTS, namespace))["items"])

        async def has_restart() -> bool:
            return (await told())["GroupRestartStarted"] == 1

        await eventually(has_restart, True)
        await asyncio.sleep(0.5)
        assert (await told())["UnreadablePod"] == BURST
