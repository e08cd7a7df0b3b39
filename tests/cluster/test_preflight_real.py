"""The controller's messages about an incomplete installation, and their cures, on a real kube-apiserver."""

from __future__ import annotations

from typing import Any

import aiohttp
import pytest
from structlog.testing import capture_logs

from inplace.common.injection.pod import InjectOptions
from inplace.common.jobset.scopes import CRD_CURE
from inplace.controller.act.job_settings import JobSettings
from inplace.controller.preflight import POLICIES, POLICIES_CURE
from inplace.controller.runtime import Controller
from testbed.control_plane import ControlPlane
from testbed.kubectl import done
from testbed.waiting import eventually
from tests.cluster.test_controller_real import running

pytestmark = pytest.mark.asyncio(loop_scope="session")

SYSTEM = "inplace-system"
ADDING = JobSettings(agent=InjectOptions(agent_image="inplace-agent:1"))


async def readiness(controller: Controller) -> str:
    """Return the body of /readyz."""
    if controller.probe_port is None or controller.probe_port.bound_port is None:
        return "not served yet"
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{controller.probe_port.bound_port}/readyz") as answer,
    ):
        return await answer.text()


async def said(plane: ControlPlane, namespace: str, account: str, readyz: str, **more: Any) -> list[Any]:
    """Run the controller as an account until /readyz begins with a text; return the preflight's log lines."""
    kubeconfig = await plane.service_account_kubeconfig(namespace, account)
    settings = {"leader_elect": True, "lease_namespace": SYSTEM, "on_cluster": True} | more
    with capture_logs() as logs:
        async with running(
            plane, None, kubeconfig=kubeconfig, probe_address=("127.0.0.1", 0), **settings
        ) as controller:

            async def is_so() -> bool:
                return (await readiness(controller)).startswith(readyz)

            await eventually(lambda: any(entry["event"].startswith("installation") for entry in logs), True)
            await eventually(is_so, True)
    return [entry for entry in logs if entry["event"].startswith("installation")]


async def test_the_wrong_service_account_is_named_with_all_it_lacks(plane: ControlPlane) -> None:
    """With a ServiceAccount without rights, one line lists the missing rights and the two commands to grant them."""
    (line,) = await said(
        plane, await plane.create_namespace("stray"), "default", "expected system:serviceaccount:stray-"
    )
    for right in ("list jobsets", "patch pods", f"update leases in namespace {SYSTEM}"):
        assert right in line["message"]
    assert "kubectl apply --server-side -k deploy/rbac" in line["cure"]
    assert "ServiceAccount inplace-controller" in line["cure"]


async def test_each_cure_cures(plane: ControlPlane) -> None:
    """With rights only, the CRD is named; with the CRD, the policies; with all, the controller is ready."""
    await done(plane.kubeconfig, "apply", "--server-side", "-k", "deploy/rbac")
    missing = f"expected the CustomResourceDefinition jobsets.jobset.x-k8s.io, found none; {CRD_CURE}"
    lines = await said(plane, SYSTEM, "inplace-controller", missing)
    assert [line["cure"] for line in lines] == [CRD_CURE, *[POLICIES_CURE] * len(POLICIES)]
    await done(plane.kubeconfig, *CRD_CURE.split()[1:])
    lines = await said(plane, SYSTEM, "inplace-controller", "ok")
    assert [(line["log_level"], line["cure"]) for line in lines] == [("warning", POLICIES_CURE)] * len(POLICIES)
    await done(plane.kubeconfig, *POLICIES_CURE.split()[1:])
    (line,) = await said(plane, SYSTEM, "inplace-controller", "ok", job_settings=ADDING)
    assert line["event"] == "installation_complete"
