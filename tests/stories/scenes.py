"""The places where a story is played: an API server, the controller, and how time passes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Protocol

from inplace.common.injection.pod import InjectOptions
from inplace.common.jobset.node_taints import TaintLimits
from inplace.common.kube.client import KubeClient
from inplace.controller.act.job_settings import JobSettings
from tests.controller.crew import Crew
from tests.controller.rig import Rig


class Scene(Protocol):
    """What the words of a story need of the place."""

    admin: KubeClient
    namespace: str

    async def wait(self, seconds: float) -> None:
        """Let time pass."""

    async def until_jobs(self, crew: Crew) -> None:
        """Wait until the controller has made Jobs."""

    def virtual(self) -> VirtualScene:
        """Return the scene, which is one of virtual time."""


class VirtualScene:
    """The embedded API server and the whole controller in virtual time."""

    namespace = "default"

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.admin = rig.admin

    async def wait(self, seconds: float) -> None:
        """Let time pass."""
        await self.rig.settle(seconds)

    async def until_jobs(self, crew: Crew) -> None:
        """Let a second pass."""
        await self.rig.settle(1.0)

    def virtual(self) -> VirtualScene:
        """Return the scene."""
        return self

    async def change_controller(self, **options: str) -> None:
        """Run another controller, with options of the word `controller`."""
        config: dict[str, Any] = {}
        if "agent-image" in options:
            config["job_settings"] = JobSettings(agent=InjectOptions(agent_image=options["agent-image"]))
        if "taints" in options:
            most, seconds, *trusted = options["taints"].split(",")
            config["taint_limits"] = TaintLimits(int(most), int(seconds), frozenset(trusted or ["default"]))
        await self.rig.change_controller(**config)


@asynccontextmanager
async def virtual_scene() -> AsyncIterator[VirtualScene]:
    """Run an embedded API server and a controller."""
    rig = Rig()
    async with rig.running():
        yield VirtualScene(rig)
