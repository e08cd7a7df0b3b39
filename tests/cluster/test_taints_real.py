"""The right to taint nodes on a real kube-apiserver: what its policy lets the controller's account do to a Node."""

from __future__ import annotations

from typing import Any

import pytest

from inplace.common.wire import names as wire
from inplace.controller.spec.node_taints import read_taint, tainting, untainting
from testbed.api_client import ApiClient, UnexpectedStatus
from testbed.binaries import Binaries
from testbed.clients.apply import Applier
from testbed.control_plane import ControlPlane
from testbed.waiting import eventually
from tests.deploy.test_taints import ALLOWED, REFUSED, TAINT, THEIRS, documents

pytestmark = pytest.mark.asyncio(loop_scope="session")

NODE = "/api/v1/nodes/n0"


async def refusal(client: ApiClient, patch: dict[str, Any]) -> str:
    """Return why a dry run of a merge patch is refused; "" if it is not."""
    try:
        await client.patch(NODE, patch, dryRun="All")
    except UnexpectedStatus as error:
        return str(error)
    return ""


async def test_what_the_controller_may_do_to_a_node(binaries: Binaries) -> None:
    """One taint NoSchedule, one label and one annotation; the test on the embedded server has the same cases."""
    async with ControlPlane(binaries) as plane, plane.client() as admin:
        await admin.post("/api/v1/namespaces", {"metadata": {"name": "inplace-system"}})
        metadata = {"name": "n0", "labels": {"rack": "a"}, "annotations": {"note": "x"}}
        await admin.post("/api/v1/nodes", {"metadata": metadata, "spec": {}})
        await admin.patch(NODE, {"spec": {"taints": [THEIRS]}})  # the server makes each new Node not-ready
        kinds = ("ClusterRole", "ClusterRoleBinding", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
        await Applier(admin).apply([one for kind in kinds for one in documents(kind)])
        kubeconfig = await plane.service_account_kubeconfig("inplace-system", "inplace-controller")
        async with plane.client(kubeconfig) as controller:

            async def is_active() -> bool:
                return "the JobSet controller may" in await refusal(controller, REFUSED["a cordon"])

            await eventually(is_active, True)
            said = {claim: await refusal(controller, patch) for claim, patch in REFUSED.items()}
            assert [claim for claim, words in said.items() if "the JobSet controller may" not in words] == []
            assert {claim: await refusal(controller, patch) for claim, patch in ALLOWED.items()} == dict.fromkeys(
                ALLOWED, ""
            )
            before = await admin.get(NODE)
            tainted = await controller.patch(NODE, tainting(before, TAINT))
            (listed,) = (await controller.get("/api/v1/nodes", labelSelector=wire.BAD_NODE))["items"]
            assert read_taint(listed) == TAINT
            after = await controller.patch(NODE, untainting(tainted))
            assert read_taint(after) is None
            assert after["spec"] == before["spec"]
