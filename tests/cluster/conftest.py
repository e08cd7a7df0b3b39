"""Share one control plane of each kind among the tests of a session; skip where none can run.

Under CI=true a missing control plane is a failure: a green run must mean that these tests ran.
"""

import os
from collections.abc import AsyncIterator
from typing import NoReturn

import pytest
import pytest_asyncio
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from images.build_once import MissingComponent
from testbed.binaries import Binaries, find_binaries
from testbed.control_plane import ControlPlane

TOGETHER = ("features", "clients")
"""Folders whose files share one control plane and what runs on it, so that one process runs them all."""


class FoldersTogether(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Distribute test files over processes, and each folder of TOGETHER to one of them."""

    def _split_scope(self, nodeid: str) -> str:
        return next((name for name in TOGETHER if f"/{name}/" in nodeid), nodeid.partition("::")[0])


# Not by xdist's groups: it appends them to `item._nodeid`, which pytest 9.2 no longer reads.
@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> FoldersTogether:
    """Let the tests of each folder of TOGETHER run in one process."""
    return FoldersTogether(config, log)


def unavailable(missing: MissingComponent) -> NoReturn:
    """Skip the test; under CI=true fail it instead."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"CI=true, but this control plane cannot run: {missing}", pytrace=False)
    pytest.skip(f"this control plane cannot run: {missing}")


@pytest.fixture(scope="session")
def binaries(pytestconfig: pytest.Config) -> Binaries:
    """Find or build the components; the build's announcement (it takes minutes) goes to the terminal."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    assert capture is not None, "pytest always registers its capture manager"
    with capture.global_and_fixture_disabled():
        try:
            return find_binaries()
        except MissingComponent as error:
            unavailable(error)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def control_plane(binaries: Binaries) -> AsyncIterator[ControlPlane]:
    """Run etcd and kube-apiserver only: what a client needs, ready in seconds."""
    async with ControlPlane(binaries) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def plane(binaries: Binaries) -> AsyncIterator[ControlPlane]:
    """Run a control plane for one module: installations and policies are cluster-wide, and accounts have any name."""
    async with ControlPlane(binaries) as running:
        yield running


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def full_control_plane(binaries: Binaries) -> AsyncIterator[ControlPlane]:
    """Run the controllers too: Jobs get Pods, namespaces a ServiceAccount, and deletion cascades."""
    try:
        control_plane = ControlPlane(binaries, with_controllers=True)
    except MissingComponent as error:
        unavailable(error)
    async with control_plane:
        yield control_plane


@pytest_asyncio.fixture(loop_scope="session")
async def namespace(control_plane: ControlPlane) -> str:
    """Give the test a fresh namespace of `control_plane`; it stays, because no controller could finish its deletion."""
    return await control_plane.create_namespace()


@pytest_asyncio.fixture(loop_scope="session")
async def full_namespace(full_control_plane: ControlPlane) -> AsyncIterator[str]:
    """Give the test a fresh namespace of `full_control_plane` and have its contents deleted afterwards."""
    name = await full_control_plane.create_namespace()
    yield name
    async with full_control_plane.client() as api:
        await api.delete(f"/api/v1/namespaces/{name}")
