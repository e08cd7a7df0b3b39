"""One control plane with audit log and admission policies, one controller, a namespace for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from inplace.common.kube.client import KubeClient
from testbed.binaries import Binaries
from testbed.control_plane import ControlPlane
from testbed.kube_client import kube_client
from tests.cluster.features.audited import audit_flags
from tests.cluster.features.served import ServedController, serving
from tests.cluster.features.stage import Stage
from tests.cluster.test_admission_real import wait_until_active
from tests.cluster.test_crd_real import install
from tests.deploy.admission import ABOUT_JOBSETS, policies

# Owner references with blockOwnerDeletion need jobsets/finalizers where this plugin is on, as on OpenShift.
_PLUGINS = "--enable-admission-plugins=OwnerReferencesPermissionEnforcement"
# The API of gangs has another version in each Kubernetes.
_GANG = ("--feature-gates=GenericWorkload=true", "--runtime-config=api/all=true")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the audit last: it judges the controller's requests of all other tests."""
    items.sort(key=lambda item: item.path.name == "test_permissions.py")


@pytest.fixture(scope="session")
def audit_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the audit log."""
    return tmp_path_factory.mktemp("audit")


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def plane(binaries: Binaries, audit_folder: Path) -> AsyncIterator[ControlPlane]:
    """Run an API server that serves JobSets, with deploy/crd and deploy/admission."""
    flags = (*audit_flags(audit_folder), _PLUGINS, *_GANG)
    async with ControlPlane(binaries, apiserver_flags=flags) as running:
        async with running.client() as client:
            await install(client)
            await client.create(policies(*ABOUT_JOBSETS))
            await wait_until_active(client)
        yield running


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def admin(plane: ControlPlane) -> AsyncIterator[KubeClient]:
    """Give an administrator."""
    async with kube_client(plane.kubeconfig) as client:
        yield client


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def controller(plane: ControlPlane, admin: KubeClient) -> AsyncIterator[ServedController]:
    """Run the controller with the shipped permissions."""
    async with serving(plane, admin) as served:
        yield served


@pytest_asyncio.fixture(loop_scope="session")
async def stage(plane: ControlPlane, admin: KubeClient, controller: ServedController) -> Stage:
    """Give a fresh namespace in which the controller works."""
    return Stage(admin, await plane.create_namespace(), "train")
