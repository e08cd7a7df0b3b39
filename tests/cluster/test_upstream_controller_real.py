"""Upstream's own controller on a real kube-apiserver: the reference that benchmarks and tests compare with."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from benchmarks.controller_lab import ControllerProcess, open_upstream_lab
from benchmarks.controller_pods import PlayedGroup
from benchmarks.controller_restart import announce_all, form, watching
from images.build_once import MissingComponent
from inplace.common.kube.client import KubeClient
from testbed.binaries import Binaries
from tests.cluster.conftest import unavailable

pytestmark = pytest.mark.asyncio(loop_scope="session")

PODS = 4


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def upstream(binaries: Binaries) -> AsyncIterator[tuple[KubeClient, ControllerProcess]]:
    """Run upstream's controller with its webhooks on a control plane of its own."""
    try:
        lab = open_upstream_lab()
        async with lab as opened:
            yield opened
    except MissingComponent as error:
        unavailable(error)


async def test_upstreams_controller_restarts_a_played_group(upstream: tuple[KubeClient, ControllerProcess]) -> None:
    """The group of the benchmark passes upstream's webhooks, forms under its controller, and restarts in place."""
    client, process = upstream
    group = PlayedGroup(client, "train")
    await group.create(PODS)
    async with watching(client, "train") as watch:
        await form(group, watch)
        restart = await announce_all(group, watch, kubelets=False)
    assert group.epoch == 2
    assert 0 < restart.deprecate_s < restart.total_s
    assert process.rss_mb() > 0
