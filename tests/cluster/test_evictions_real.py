"""EvictionRequests on a real API server, whose controller is played: Kubernetes 1.37 has the types alone."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest

from inplace.common.kube.clock import LoopClock
from inplace.common.kube.resources import EVICTIONS
from inplace.common.kube.timestamps import time_text
from testbed.binaries import Binaries
from testbed.control_plane import ControlPlane
from testbed.go_programs import kubernetes_version
from testbed.kube_client import kube_client
from tests.cluster.features.served import serving
from tests.cluster.test_crd_real import install
from tests.controller.test_evictions import member_moves
from tests.stories.scenes import ServedScene

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.skipif(kubernetes_version() < "v1.37", reason="lifecycle.k8s.io/v1alpha1 came with Kubernetes 1.37")
async def test_a_member_whose_eviction_is_requested_moves(binaries: Binaries) -> None:
    """The server takes the Pods that name us as a responder, and each report, with the rights of deploy/rbac."""
    flags = (f"--runtime-config={EVICTIONS.api_version}=true",)
    async with AsyncExitStack() as ending:
        served = ControlPlane(binaries, feature_gates="EvictionRequestAPI=true", apiserver_flags=flags)
        plane = await ending.enter_async_context(served)
        admin = await ending.enter_async_context(kube_client(plane.kubeconfig))
        await install(await ending.enter_async_context(plane.client()))
        await ending.enter_async_context(serving(plane, admin))
        scene = ServedScene(admin, await plane.create_namespace("evicted"), is_real=True)
        await member_moves(scene, lambda: time_text(LoopClock()))
