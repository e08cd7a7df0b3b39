"""One control plane with Nodes, a JobSet controller and Kueue, for the scenarios of one process."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from testbed.api_client import ApiClient
from testbed.binaries import Binaries
from testbed.clients.apply import Applier
from testbed.clients.manifests import kustomized
from testbed.clients.played_nodes import PlayedNodes, played_nodes
from testbed.clients.programs import LEFT_OUT, Kueue, trainer_definitions
from testbed.control_plane import ControlPlane
from testbed.kube_client import kube_client
from tests.cluster.features.served import ServedController, serving

DEPLOY: Final = Path(__file__).parents[3] / "deploy"

CONTROLLER: Final = os.environ.get("JOBSET_CONTROLLER", "ours")
"""Whose controller the scenarios run with; `upstream` is for the table, see table.py."""

SPOT, RESERVED = "spot", "reserved"
RACKS: Final = ("rack-a", "rack-b")
NODES_PER_RACK: Final = 3


@dataclass(frozen=True, slots=True)
class World:
    """What the scenarios share."""

    plane: ControlPlane
    api: ApiClient
    applier: Applier
    nodes: PlayedNodes
    kueue: Kueue
    controller: ServedController | None


@asynccontextmanager
async def running_world(binaries: Binaries) -> AsyncIterator[World]:
    """Start everything and end it afterwards, clients before servers."""
    async with AsyncExitStack() as ending:
        plane = await ending.enter_async_context(ControlPlane(binaries, with_controllers=True))
        api = await ending.enter_async_context(plane.client())
        applier = Applier(api)
        await applier.apply(trainer_definitions())  # BEFORE Kueue starts: it looks once a minute for what was missing
        controller = await _start_controller(ending, plane, applier)
        nodes = await ending.enter_async_context(played_nodes(plane))
        for rack in RACKS:
            for number in range(NODES_PER_RACK):
                kind = SPOT if number == 0 else RESERVED
                await nodes.add(f"{rack}-{number}", rack=rack, capacity=kind)
        kueue = await ending.enter_async_context(Kueue(plane).running())
        yield World(plane, api, applier, nodes, kueue, controller)


async def _start_controller(ending: AsyncExitStack, plane: ControlPlane, applier: Applier) -> ServedController | None:
    """Start the JobSet controller under test, with its CRD and its admission."""
    if CONTROLLER == "upstream":
        from testbed.upstream.controller import upstream_controller

        await ending.enter_async_context(upstream_controller(plane))
        return None
    await applier.apply(_shipped())
    admin = await ending.enter_async_context(kube_client(plane.kubeconfig))
    flags = ("--agent-image=inplace-agent", "--taint-bad-nodes=2/120")
    return await ending.enter_async_context(serving(plane, admin, *flags))


def _shipped() -> list[dict[str, Any]]:
    """Return what deploy/overlays/taints installs, but for the Deployment, which a process stands for."""
    return [each for each in kustomized(DEPLOY / "overlays" / "taints") if each["kind"] not in LEFT_OUT]
