"""The places where a story is played: an API server, the controller, and how time passes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from random import Random
from typing import Any, Final, Protocol

from inplace.common.jobset.node_taints import TaintLimits
from inplace.common.kube.client import KubeClient
from inplace.common.kube.clock import LoopClock
from inplace.common.kube.errors import NotFound
from inplace.common.kube.resources import JOBS, PODS
from inplace.controller.config import ControllerConfig
from inplace.controller.runtime import Controller
from inplace.simulator.apiserver import ApiServer, HttpFront
from inplace.simulator.apiserver.http_front import url_as
from inplace.simulator.cluster.manifests import custom_resource_definitions
from tests.controller.background import background
from tests.controller.rig import USER, Rig
from tests.http_transport import AiohttpTransport

SEEN_S: Final = 0.3
PAUSE_S: Final = 0.05  # in real time a pause is short, because each answer is waited for


class Scene(Protocol):
    """What the words of a story need of the place.

    Args:
        suffix: of the names of nodes, which other stories' nodes have not.
    """

    admin: KubeClient
    namespace: str
    suffix: str

    async def wait(self, seconds: float) -> None:
        """Let time pass because the story says so."""

    async def pause(self, seconds: float) -> None:
        """Let the controller work for so long, in virtual time."""

    async def see(self) -> None:
        """Let the controller act on what was just done, as it does at once in virtual time."""

    async def collect(self) -> None:
        """Do what the garbage collector does where none runs."""

    def virtual(self) -> VirtualScene:
        """Return the scene, which is one of virtual time."""


class VirtualScene:
    """The embedded API server and the whole controller in virtual time."""

    namespace, suffix = "default", ""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.admin = rig.admin

    async def wait(self, seconds: float) -> None:
        """Let time pass."""
        await self.rig.settle(seconds)

    pause = wait

    async def see(self) -> None:
        """Go on: nothing takes time."""

    async def collect(self) -> None:
        """Leave it to the embedded server's garbage collector."""

    def virtual(self) -> VirtualScene:
        """Return the scene."""
        return self

    async def change_controller(self, **options: str) -> None:
        """Run another controller, with options of the word `controller`."""
        config: dict[str, Any] = {}
        if "taints" in options:
            most, seconds, *trusted = options["taints"].split(",")
            config["taint_limits"] = TaintLimits(int(most), int(seconds), frozenset(trusted or ["default"]))
        await self.rig.change_controller(**config)


class ServedScene:
    """An API server behind a connection, in real time.

    Args:
        admin: a client of the server, at which a controller works.
        namespace: of this story alone.
        is_real: the server has no garbage collector, and other stories' nodes.
    """

    def __init__(self, admin: KubeClient, namespace: str, *, is_real: bool) -> None:
        self.admin, self.namespace = admin, namespace
        self.suffix = f"-{namespace}" if is_real else ""
        self._is_real = is_real

    async def wait(self, seconds: float) -> None:
        """Let time pass."""
        await asyncio.sleep(seconds)

    async def pause(self, seconds: float) -> None:
        """Wait for a moment."""
        await asyncio.sleep(min(seconds, PAUSE_S))

    async def see(self) -> None:
        """Wait for a status write."""
        await asyncio.sleep(SEEN_S)

    async def collect(self) -> None:
        """Remove Jobs that are deleted, and delete their Pods."""
        if not self._is_real:
            return
        left = set()
        for job in (await self.admin.list(JOBS, self.namespace))["items"]:
            metadata = job["metadata"]
            if "deletionTimestamp" not in metadata:
                left.add(metadata["uid"])
                continue
            with suppress(NotFound):
                await self.admin.patch(JOBS, self.namespace, metadata["name"], {"metadata": {"finalizers": None}})
        for pod in (await self.admin.list(PODS, self.namespace))["items"]:
            metadata = pod["metadata"]
            if metadata["ownerReferences"][0]["uid"] not in left and "deletionTimestamp" not in metadata:
                await self.admin.delete(PODS, self.namespace, metadata["name"])

    def virtual(self) -> VirtualScene:
        """Refuse: a story of real time has no such word."""
        raise AssertionError("expected a story without words of virtual time")


@asynccontextmanager
async def virtual_scene() -> AsyncIterator[VirtualScene]:
    """Run an embedded API server and a controller."""
    rig = Rig()
    async with rig.running():
        yield VirtualScene(rig)


@asynccontextmanager
async def loopback_scene() -> AsyncIterator[ServedScene]:
    """Run an embedded API server and a controller, with HTTP over loopback between them."""
    clock = LoopClock()
    server = ApiServer(clock=clock, rng=Random(1))
    server.load(custom_resource_definitions())
    front = HttpFront(server)
    url = await front.start()
    transports = AiohttpTransport(url_as(url, "admin")), AiohttpTransport(url_as(url, USER))
    config = ControllerConfig(leader_elect=False)
    controller = Controller(transports[1], clock=clock, rng=Random(0), config=config)
    try:
        async with background(server.run(), controller.run()):
            yield ServedScene(
                KubeClient(transports[0], user_agent="admin", field_manager="admin"), "default", is_real=False
            )
    finally:
        for transport in transports:
            await transport.close()
        await front.stop()
