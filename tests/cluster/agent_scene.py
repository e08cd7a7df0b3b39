"""
A namespace with an agent's Pods and tokens, on a real kube-apiserver with RBAC and our policy.

Nothing runs in its Pods. The tests send an agent's or an intruder's requests with tokens of the TokenRequest API,
which are bound like kubelet's tokens.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from inplace.common.injection.rights import permissions, service_account
from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from testbed.api_client import ApiClient, UnexpectedStatus, connect
from testbed.control_plane import ControlPlane
from testbed.waiting import until
from tests.cluster.test_crd_real import install
from tests.controller.manifests import changed, jobset
from tests.deploy.admission import policies
from tests.deploy.agent_attempts import ACCOUNT, BEFORE, GONE, OTHER, OWN, STRANGER, TRACKING, WEB, Attempt

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
AGENTS_ROLE: Final = DEPLOY / "rbac" / "agents.yaml"
ACTIVE_S_MAX: Final = 90.0  # a policy acts about a second after its storage, later on a busy machine
CORE: Final = "/api/v1/namespaces"
GROUP: Final = "rbac.authorization.k8s.io"
RBAC: Final = f"/apis/{GROUP}/v1"
DRY: Final = {"dryRun": "All"}
LABELLING: Final = Attempt("add a label", {"metadata": {"labels": {"a": "b"}}}, "", query=DRY)
DELETING: Final = Attempt("delete its Pod", None, "", method="DELETE", query=DRY)


@dataclass(frozen=True, slots=True)
class Answer:
    """The server's answer; 2xx means that the attempt succeeded."""

    code: int
    message: str


@dataclass(slots=True)
class Scene:
    """One namespace of agents.

    Args:
        foreign: another namespace, with a Pod of the same name.
        account: of the Pods.
        kubeconfigs: by the token in it.
        clients: by the token that they send.
    """

    plane: ControlPlane
    admin: ApiClient
    namespace: str
    foreign: str
    account: str = ACCOUNT
    uid: str = ""
    kubeconfigs: dict[str, Path] = field(default_factory=dict)
    clients: dict[str, ApiClient] = field(default_factory=dict)

    async def answer(self, attempt: Attempt) -> Answer:
        """Send an attempt."""
        path = attempt.path.format(namespace=self.namespace, foreign=self.foreign, account=self.account)
        kind = attempt.content_type if attempt.method == "PATCH" else "application/json"
        try:
            await self.clients[attempt.token].text(
                attempt.method, path, body=attempt.body, query=attempt.query, content_type=kind
            )
        except UnexpectedStatus as error:
            return Answer(error.status, message_of(error.body))
        return Answer(200, "accepted")

    async def pods(self) -> dict[str, KubeObject]:
        """Return every Pod of both namespaces."""
        found = [await self.admin.get(f"{CORE}/{namespace}/pods") for namespace in (self.namespace, self.foreign)]
        return {pod["metadata"]["uid"]: pod for listed in found for pod in listed["items"]}


def message_of(body: str) -> str:
    """Return a Status' message, or the body where it is none."""
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError):
        return body


def pod(name: str, account: str = ACCOUNT) -> KubeObject:
    """Return a Pod of a Job, as the Job controller makes it."""
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": "train-w-0",
        "uid": "11111111-2222-3333-4444-555555555555",
    }
    return {
        "metadata": {
            "name": name,
            "annotations": BEFORE,
            "labels": {wire.JOBSET_NAME: "train", "app": "train"},
            "finalizers": [TRACKING],
            "ownerReferences": [owner | {"controller": True}],
        },
        "spec": {
            "serviceAccountName": account,
            "schedulingGates": [{"name": wire.PLACEMENT_GATE}],
            "containers": [{"name": "worker", "image": "good", "resources": {"requests": {"cpu": "1"}}}],
        },
    }


def pod_path(scene: Scene) -> str:
    """Return the path of the Pod that the agent's token is bound to."""
    return f"{CORE}/{scene.namespace}/pods/{OWN}"


async def own_pod(scene: Scene) -> KubeObject:
    """Return the agent's Pod as stored."""
    stored: KubeObject = await scene.admin.get(pod_path(scene))
    return stored


async def install_policy(admin: ApiClient) -> None:
    """Store the CRD and the agents' policy; its effect comes later."""
    await install(admin)
    await admin.create(policies("agents.yaml"))


@asynccontextmanager
async def agent_scene(plane: ControlPlane, *, is_mighty: bool = False, account: str = ACCOUNT) -> AsyncIterator[Scene]:
    """Make a scene with the permissions that `inject` prints, or with an account that RBAC allows everything.

    The second account shows what the policy refuses without RBAC.

    Args:
        plane: where.
        is_mighty: RBAC allows the account everything.
        account: of the Pods.
    """
    async with AsyncExitStack() as ending:
        admin = await ending.enter_async_context(plane.client())
        await install_policy(admin)
        namespaces = await plane.create_namespace("team"), await plane.create_namespace("foreign")
        scene = Scene(plane, admin, *namespaces, account)
        await _grant(scene, is_mighty)
        await _populate(scene)
        for name, claim in (
            ("own", {"kind": "Pod", "apiVersion": "v1", "name": OWN}),
            ("other", {"kind": "Pod", "apiVersion": "v1", "name": OTHER}),
            ("gone", {"kind": "Pod", "apiVersion": "v1", "name": GONE}),
            ("web", {"kind": "Pod", "apiVersion": "v1", "name": WEB}),
            ("secret", {"kind": "Secret", "apiVersion": "v1", "name": "bait"}),
            ("unbound", None),
        ):
            scene.kubeconfigs[name] = await _kubeconfig(scene, name, claim)
            scene.clients[name] = await ending.enter_async_context(connect(scene.kubeconfigs[name]))
        scene.kubeconfigs["stranger"] = await plane.service_account_kubeconfig(scene.namespace, "default")
        gone = f"{CORE}/{scene.namespace}/pods/{GONE}"
        await admin.patch(gone, {"metadata": {"finalizers": None}})
        await admin.delete(gone, gracePeriodSeconds="0")
        await _wait_until_active(scene)
        yield scene


async def _grant(scene: Scene, is_mighty: bool) -> None:
    """Give the account its rights in the namespace, and all others if wanted."""
    await bind_agents_role(scene, scene.account)
    if is_mighty:
        await scene.admin.post(
            f"{RBAC}/clusterrolebindings",
            {
                "metadata": {"name": scene.namespace},
                "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": "cluster-admin"},
                "subjects": [{"kind": "ServiceAccount", "name": scene.account, "namespace": scene.namespace}],
            },
        )


async def bind_agents_role(scene: Scene, account: str) -> None:
    """Create an account, and give it in the scene's namespace what the controller gives for JobSet `train`."""
    role: KubeObject = next(yaml.safe_load_all(AGENTS_ROLE.read_text()))
    rights = permissions(scene.namespace, account, "train")
    await scene.admin.create([role, service_account(scene.namespace, account), *rights])


async def bind_rules(scene: Scene, account: str, rules: Sequence[KubeObject]) -> None:
    """Create an account where it is missing, and let it do this in the scene's namespace."""
    name = f"{account}-own"
    await scene.admin.post(f"{RBAC}/namespaces/{scene.namespace}/roles", {"metadata": {"name": name}, "rules": rules})
    await bind(scene, account, {"apiGroup": GROUP, "kind": "Role", "name": name})


async def bind(scene: Scene, account: str, role: KubeObject) -> None:
    """Create an account where it is missing, and bind it to a role in the scene's namespace."""
    with suppress(UnexpectedStatus):  # it is there
        await scene.admin.post(f"{CORE}/{scene.namespace}/serviceaccounts", {"metadata": {"name": account}})
    body = {
        "metadata": {"name": f"{account}-{role['kind'].lower()}"},
        "roleRef": role,
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": scene.namespace}],
    }
    await scene.admin.post(f"{RBAC}/namespaces/{scene.namespace}/rolebindings", body)


async def _populate(scene: Scene) -> None:
    """Make the Pods, the Secret and the JobSet."""
    pods = f"{CORE}/{scene.namespace}/pods"
    scene.uid = (await scene.admin.post(pods, pod(OWN, scene.account)))["metadata"]["uid"]
    await scene.admin.post(pods, pod(OTHER, scene.account))
    await scene.admin.post(pods, pod(GONE, scene.account))
    await scene.admin.post(pods, pod(STRANGER, "default"))
    web = pod(WEB, scene.account)
    await scene.admin.post(pods, web | {"metadata": {"name": WEB, "annotations": BEFORE}})
    await scene.admin.post(f"{CORE}/{scene.foreign}/pods", pod(OWN))
    await scene.admin.post(f"{CORE}/{scene.namespace}/secrets", {"metadata": {"name": "bait"}})
    for name in ("train", "other"):
        manifest = changed(jobset(name), "metadata.namespace", scene.namespace)
        await scene.admin.post(f"/apis/{wire.API_VERSION}/namespaces/{scene.namespace}/jobsets", manifest)


async def _kubeconfig(scene: Scene, name: str, claim: Mapping[str, Any] | None) -> Path:
    """Write a kubeconfig with a token of the account that is bound to `claim`, as kubelet's are to their Pod."""
    unbound = await scene.plane.service_account_kubeconfig(scene.namespace, scene.account)
    if claim is None:
        return unbound
    path = f"{CORE}/{scene.namespace}/serviceaccounts/{scene.account}/token"
    granted = await scene.admin.post(path, {"spec": {"boundObjectRef": claim}})
    config = json.loads(unbound.read_text())
    config["users"][0]["user"] = {"token": granted["status"]["token"]}
    bound = unbound.with_name(f"{scene.namespace}-{name}.kubeconfig")
    bound.write_text(json.dumps(config))
    return bound


async def _wait_until_active(scene: Scene) -> None:
    """Return when the policies refuse what RBAC allows."""

    async def refuse() -> bool:
        return all([(await scene.answer(attempt)).code != 200 for attempt in (LABELLING, DELETING)])

    await until(refuse, "policies that refuse", timeout_s=ACTIVE_S_MAX)
