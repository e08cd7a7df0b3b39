"""The right to taint nodes: not installed by default, and held to one taint by a policy."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
import yaml

from inplace.common.jobset.node_taints import NodeTaint, read_taint, tainting, untainting
from inplace.common.kube.client import KubeClient
from inplace.common.kube.clock import LoopClock
from inplace.common.kube.errors import ApiError
from inplace.common.kube.resources import NODES, KubeObject
from inplace.common.wire import names as wire
from inplace.controller.preflight import FOR_TAINTS, NEEDED
from inplace.simulator.apiserver import ApiServer, InMemoryTransport
from inplace.simulator.cluster.manifests import read_manifests
from inplace.simulator.cluster.nodes import node

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
RIGHT: Final = DEPLOY / "overlays" / "taints" / "taints.yaml"
CONTROLLER: Final = "system:serviceaccount:inplace-system:inplace-controller"
THEIRS: Final = {"key": "broken", "effect": "NoExecute"}
TAINT: Final = NodeTaint("default", "train", "u1", "2026-01-01T00:10:00.000Z")

pytestmark = pytest.mark.virtual_time

ALLOWED: Final[dict[str, KubeObject]] = {
    "a taint of ours": {"spec": {"taints": [THEIRS, {"key": wire.BAD_NODE, "effect": "NoSchedule"}]}},
    "our label": {"metadata": {"labels": {wire.BAD_NODE: ""}}},
    "our annotation": {"metadata": {"annotations": {wire.BAD_NODE: "x"}}},
    "nothing": {"spec": {"unschedulable": None}},
}
REFUSED: Final[dict[str, KubeObject]] = {
    "a taint of ours that ends Pods": {"spec": {"taints": [THEIRS, {"key": wire.BAD_NODE, "effect": "NoExecute"}]}},
    "another taint": {"spec": {"taints": [THEIRS, {"key": "mine", "effect": "NoSchedule"}]}},
    "the taint of somebody else": {"spec": {"taints": None}},
    "a changed taint": {"spec": {"taints": [THEIRS | {"value": "x"}]}},
    "a cordon": {"spec": {"unschedulable": True}},
    "a provider": {"spec": {"providerID": "x"}},
    "another label": {"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}},
    "a changed label": {"metadata": {"labels": {"rack": "b"}}},
    "a removed label": {"metadata": {"labels": {"rack": None}}},
    "another annotation": {"metadata": {"annotations": {"x": "y"}}},
    "a removed annotation": {"metadata": {"annotations": {"note": None}}},
    "a finalizer": {"metadata": {"finalizers": ["x/y"]}},
}
CONTROL_PLANE: Final = "node-role.kubernetes.io/control-plane"
OF_CONTROL_PLANE: Final[dict[str, KubeObject]] = {
    "by its label": {"metadata": {"labels": {CONTROL_PLANE: ""}}},
    "by its taint": {"spec": {"taints": [THEIRS, {"key": CONTROL_PLANE, "effect": "NoSchedule"}]}},
    "by its old label": {"metadata": {"labels": {"node-role.kubernetes.io/master": "true"}}},
}


def documents(kind: str) -> list[KubeObject]:
    """Return what the overlay adds, of one kind."""
    return [one for one in read_manifests(RIGHT) if one["kind"] == kind]


def client_of(server: ApiServer, user: str) -> KubeClient:
    """Return a user's client."""
    return KubeClient(InMemoryTransport(server, user=user), user_agent="t", field_manager="t")


async def served() -> ApiServer:
    """Return a server that has the policy and one Node."""
    server = ApiServer(clock=LoopClock(0.0), rng=Random(1))
    server.load(read_manifests(RIGHT))
    made = node("n0", pods=8, now="2026-01-01T00:00:00Z")
    made["metadata"] |= {"labels": {"rack": "a"}, "annotations": {"note": "x"}}
    made["spec"] = {**(made.get("spec") or {}), "taints": [THEIRS]}
    await client_of(server, "admin").create(NODES, None, made)
    return server


async def stored(user: str = CONTROLLER) -> KubeClient:
    """Return a user's client of such a server."""
    return client_of(await served(), user)


@pytest.mark.parametrize("claim", ALLOWED)
async def test_what_the_controller_may_do_to_a_node(claim: str) -> None:
    """Its own taint, label and annotation."""
    await (await stored()).patch(NODES, None, "n0", ALLOWED[claim])


@pytest.mark.parametrize("claim", REFUSED)
async def test_what_the_controller_may_not_do_to_a_node(claim: str) -> None:
    """Whoever holds its token can neither cordon a node, end Pods on it, nor give it a label; another user can."""
    with pytest.raises(ApiError, match="the JobSet controller may"):
        await (await stored()).patch(NODES, None, "n0", REFUSED[claim])
    await (await stored("admin")).patch(NODES, None, "n0", REFUSED[claim])


@pytest.mark.attack
@pytest.mark.parametrize("claim", OF_CONTROL_PLANE)
async def test_no_node_of_the_control_plane_is_tainted(claim: str) -> None:
    """Not even by a stolen token; a taint that is there when the node becomes one may go."""
    server = await served()
    admin, controller = client_of(server, "admin"), client_of(server, CONTROLLER)
    await controller.patch(NODES, None, "n0", tainting(await admin.get(NODES, None, "n0"), TAINT))
    before = await admin.get(NODES, None, "n0")
    change = OF_CONTROL_PLANE[claim]
    spec = change.get("spec") and {"spec": {"taints": [*before["spec"]["taints"], *change["spec"]["taints"][1:]]}}
    await admin.patch(NODES, None, "n0", spec or change)
    await controller.patch(NODES, None, "n0", untainting(await admin.get(NODES, None, "n0")))
    after = await admin.get(NODES, None, "n0")
    assert read_taint(after) is None
    with pytest.raises(ApiError, match="the JobSet controller may taint no node of the control plane"):
        await controller.patch(NODES, None, "n0", tainting(after, TAINT))


async def test_what_the_controller_does() -> None:
    """Both of its patches pass, and the Node is as before."""
    client = await stored()
    before = await client.get(NODES, None, "n0")
    tainted = await client.patch(NODES, None, "n0", tainting(before, TAINT))
    after = await client.patch(NODES, None, "n0", untainting(tainted))

    def kept(found: KubeObject) -> Any:
        return found["spec"], found["metadata"]["labels"], found["metadata"]["annotations"]

    assert kept(tainted) != kept(before) == kept(after)


async def test_the_right_is_not_installed_by_default() -> None:
    """No manifest of the base lets the controller write Nodes; the overlay adds what the preflight asks for."""
    for path in (DEPLOY / "rbac").glob("*.yaml"):
        for found in yaml.safe_load_all(path.read_text()):
            for rule in found.get("rules") or ():
                assert "nodes" not in rule["resources"] or set(rule["verbs"]) <= set(NEEDED["/nodes"]), path
    (role,) = documents("ClusterRole")
    granted = {
        f"{group}/{name}": tuple(rule["verbs"])
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for name in rule["resources"]
    }
    assert granted == FOR_TAINTS
