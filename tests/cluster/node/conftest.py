"""Give the tests one cluster with a real node; skip or fail where none can run.

Run them with `make test-node`, which puts the whole run into a capsule. Without a capsule these tests skip. Under
CI=true they fail instead, because a green run must mean that they ran; a user who is not root skips in any case.
"""

import os
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NoReturn

import pytest
import pytest_asyncio

from images.build_once import MissingComponent
from testbed.binaries import Binaries
from testbed.go_programs import RUNTIME
from testbed.node import archives, capsule, host
from testbed.node.cluster import Cluster, running_cluster
from testbed.node.group import Group, running_group
from testbed.node.machine import Node

MODES = (  # CI has what `inject` makes
    "containers",
    pytest.param("process", marks=pytest.mark.long),
    "supervisor",
)
RESTARTS_MAX = 1000  # the tests of one module need some thirty


def _unavailable(reason: object) -> NoReturn:
    if os.environ.get("CI") == "true" and os.geteuid() == 0:
        pytest.fail(f"CI=true, but no node can run: {reason}", pytrace=False)
    pytest.skip(f"no node can run: {reason}")


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def cluster(binaries: Binaries) -> AsyncIterator[Cluster]:
    """Run a control plane, our controller and one node for the whole session."""
    try:
        host.check()
    except MissingComponent as error:
        _unavailable(error)
    if not capsule.inside():
        _unavailable("this run is in no capsule; use make test-node")
    programs, images = RUNTIME.build(), archives.build()
    folder = Path(tempfile.mkdtemp(prefix="cluster-"))
    async with running_cluster(binaries, programs=programs, images=images, folder=folder) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def second(cluster: Cluster) -> AsyncIterator[Node]:
    """Give a second node; a module's last test may lose it, otherwise it is stopped and deleted at the end."""
    node = await cluster.add_node()
    yield node
    await cluster.lose(node)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def third(cluster: Cluster, second: Node) -> AsyncIterator[Node]:
    """Give a third node, after the second one."""
    node = await cluster.add_node()
    yield node
    await cluster.lose(node)


@pytest_asyncio.fixture(scope="module", loop_scope="session", params=MODES)
async def group(cluster: Cluster, request: pytest.FixtureRequest) -> AsyncIterator[Group]:
    """Run a group that a module's tests restart one after the other, each from the epoch that the last one left."""
    async with running_group(cluster, request.param, restarts_max=RESTARTS_MAX) as running:
        await running.until_runs(1)
        yield running


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    """Name each way to run an agent."""
    value: str = request.param
    return value
