"""The rights of an agent whose Pod has its user's own ServiceAccount, and who else the policy restricts.

The server has RBAC and our policies; the account is bound to the ClusterRole of deploy/rbac, as the controller does it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

import pytest
import pytest_asyncio

from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from testbed.api_client import UnexpectedStatus, connect
from testbed.control_plane import ControlPlane
from testbed.kubectl import kubectl
from testbed.waiting import eventually
from tests.cluster.agent_scene import (
    CORE,
    DRY,
    GROUP,
    RBAC,
    Scene,
    agent_scene,
    bind_agents_role,
    bind_rules,
    own_pod,
    pod_path,
)
from tests.cluster.test_agent_permissions_real import is_refused, names
from tests.deploy.agent_attempts import ATTEMPTS, FORCED, OTHER, OWN, Attempt, announced
from tests.deploy.agent_permissions import refuser

pytestmark = pytest.mark.asyncio(loop_scope="session")

TRAINER: Final = "trainer"
FORBIDDEN: Final = 403
LABEL: Final = {"metadata": {"labels": {"a": "b"}}}
IMAGE: Final = {"spec": {"containers": [{"name": "worker", "image": "other"}]}}
PODS: Final = {"apiGroups": [""], "resources": ["pods"]}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def scene(plane: ControlPlane) -> AsyncIterator[Scene]:
    """Give a namespace whose Pods have an account of the user, bound to the agents' ClusterRole."""
    async with agent_scene(plane, account=TRAINER) as made:
        yield made


@pytest.mark.parametrize("attempt", ATTEMPTS, ids=names)
async def test_refused(scene: Scene, attempt: Attempt) -> None:
    """An account of any name is refused what inplace-agent is refused, by the same part of the server."""
    answer = await is_refused(scene, attempt)
    if refuser(answer) == "policy":
        assert attempt.words in answer.message


async def answer_of(scene: Scene, account: str, body: Any, *, method: str = "PATCH") -> str:
    """Let an account write a Pod that it is not bound to; return "" when it may, else the refuser."""
    kubeconfig = await scene.plane.service_account_kubeconfig(scene.namespace, account)
    kind = "application/strategic-merge-patch+json" if method == "PATCH" else "application/json"
    path = f"{CORE}/{scene.namespace}/pods/{OTHER}"
    async with connect(kubeconfig) as client:
        try:
            await client.text(method, path, body=body, query=DRY, content_type=kind)
        except UnexpectedStatus as error:
            if error.status != FORBIDDEN:
                raise
            return "policy" if "ValidatingAdmissionPolicy" in error.body else "RBAC"
    return ""


async def becomes(scene: Scene, account: str, wanted: str) -> None:
    """Wait until the server, which learns of new bindings by a watch, answers an account's label so."""
    await eventually(lambda: answer_of(scene, account, LABEL), wanted)


async def test_the_right_is_the_bindings(scene: Scene) -> None:
    """The account that is bound to nothing may not even patch; the right ends at the namespace."""
    assert await answer_of(scene, "unbound", announced(epoch="6", attempt="5")) == "RBAC"
    async with connect(await scene.plane.service_account_kubeconfig(scene.namespace, TRAINER)) as client:
        with pytest.raises(UnexpectedStatus, match="403"):
            await client.get(f"/apis/{wire.API_VERSION}/namespaces/{scene.foreign}/jobsets")


async def test_upstreams_agent_is_allowed(scene: Scene) -> None:
    """Upstream's agent may read its JobSet, and apply its annotation by force."""
    client = scene.clients["own"]
    await client.get(f"/apis/{wire.API_VERSION}/namespaces/{scene.namespace}/jobsets/train")
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": OWN, **announced(attempt="9")["metadata"]}}
    query = FORCED | DRY
    await client.text("PATCH", pod_path(scene), body=body, query=query, content_type="application/apply-patch+yaml")


async def test_a_workers_own_token_announces_and_no_more(scene: Scene) -> None:
    """A second token for the same Pod, as its worker's container may have one, is the agent's equal."""
    pod = await own_pod(scene)
    uid = pod["metadata"]["uid"]
    kubeconfig = await scene.plane.service_account_kubeconfig(scene.namespace, TRAINER, pod=OWN, uid=uid)
    async with connect(kubeconfig) as client:
        await client.patch(pod_path(scene), announced(epoch="6", attempt="5"), **DRY)
        for body in (LABEL, {"metadata": {"annotations": {"a": "b"}}}, {"spec": {"activeDeadlineSeconds": 1}}):
            with pytest.raises(UnexpectedStatus, match="may change only"):
                await client.patch(pod_path(scene), body, **DRY)
        with pytest.raises(UnexpectedStatus, match="token is bound to"):
            await client.patch(f"{CORE}/{scene.namespace}/pods/{OTHER}", announced(epoch="6"), **DRY)


@pytest.mark.parametrize(
    ("account", "rules"),
    [
        ("updater", [PODS | {"verbs": ["update"]}]),
        ("everything", [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]),
        ("of-one-pod", [PODS | {"verbs": ["update"], "resourceNames": [OTHER]}]),
    ],
)
async def test_who_may_update_the_pod_is_free(scene: Scene, account: str, rules: list[KubeObject]) -> None:
    """An account with our binding and a right of its own to update the Pod may change it in every way."""
    await bind_agents_role(scene, account)
    await bind_rules(scene, account, rules)
    await becomes(scene, account, "")
    for body in (IMAGE, {"metadata": {"annotations": {wire.EPOCH: None}}}, {"metadata": {"finalizers": None}}):
        assert await answer_of(scene, account, body) == ""
    stored = await scene.admin.get(f"{CORE}/{scene.namespace}/pods/{OTHER}")
    stored["metadata"]["labels"]["a"] = "b"
    assert await answer_of(scene, account, stored, method="PUT") == ""


async def test_the_right_to_update_one_pod_frees_no_other(scene: Scene) -> None:
    """The question is about the Pod that is written."""
    await bind_agents_role(scene, "elsewhere")
    await bind_rules(scene, "elsewhere", [PODS | {"verbs": ["update"], "resourceNames": ["another"]}])
    await becomes(scene, "elsewhere", "policy")


async def test_everything_without_our_binding_is_free(scene: Scene) -> None:
    """An account with every right has the agents' right too, and is no agent."""
    await bind_rules(scene, "admin", [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}])
    await becomes(scene, "admin", "")


async def test_an_operator_that_patches_pods_is_free_without_our_binding(scene: Scene) -> None:
    """Who may patch Pods by a right of its own, as the Job controller, is no agent; with our binding it is one."""
    await bind_rules(scene, "operator", [PODS | {"verbs": ["patch"]}])
    await becomes(scene, "operator", "")
    await bind_agents_role(scene, "operator")
    await becomes(scene, "operator", "policy")


async def test_the_agents_name_is_never_free(plane: ControlPlane) -> None:
    """An account named inplace-agent that may update Pods stays restricted, as before."""
    async with agent_scene(plane) as scene:
        await bind_rules(scene, "inplace-agent", [PODS | {"verbs": ["update"]}])
        stored = await scene.admin.get(f"{CORE}/{scene.namespace}/pods/{OTHER}")
        stored["metadata"]["labels"]["a"] = "b"
        await eventually(lambda: answer_of(scene, "inplace-agent", stored, method="PUT"), "policy")


async def test_people_are_no_agents(scene: Scene) -> None:
    """The right makes agents of ServiceAccounts alone: a person who is bound to the role patches as RBAC lets him."""
    await bind_rules(scene, "reader", [PODS | {"verbs": ["get"]}])
    for role in ("Role/reader-own", "ClusterRole/inplace-agent"):
        kind, _, name = role.partition("/")
        body = {
            "metadata": {"name": f"jane-{name}"},
            "roleRef": {"apiGroup": GROUP, "kind": kind, "name": name},
            "subjects": [{"apiGroup": GROUP, "kind": "User", "name": "jane"}],
        }
        await scene.admin.post(f"{RBAC}/namespaces/{scene.namespace}/rolebindings", body)
    arguments = ("--as=jane", f"--namespace={scene.namespace}", "label", "pod", OTHER, "a=b", "--dry-run=server")

    async def labels() -> int:
        return (await kubectl(scene.plane.kubeconfig, *arguments)).code

    await eventually(labels, 0)
