"""A stolen token of the controller on a real kube-apiserver: RBAC and deploy/admission/controller.yaml as shipped."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pytest
import pytest_asyncio
import yaml

from inplace.common.injection.rights import permissions
from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from testbed.api_client import ApiClient, UnexpectedStatus
from testbed.control_plane import ControlPlane
from testbed.waiting import eventually
from tests.cluster.agent_scene import CORE, DEPLOY, RBAC, pod
from tests.cluster.test_crd_real import install
from tests.deploy.admission import policies

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.attack]

DRY: Final = {"dryRun": "All"}
GROUP: Final = "rbac.authorization.k8s.io"
OWNER: Final = {"apiVersion": wire.API_VERSION, "kind": wire.KIND, "name": "train", "uid": "5f0f2ac8-0b5e"}
POD: Final = "train-w-0-0"
READS: Final = {"apiGroups": [wire.API_GROUP], "resources": ["jobsets"], "verbs": ["get"], "resourceNames": ["train"]}


def metadata(key: str, value: Any) -> KubeObject:
    """Return a patch of one field of metadata."""
    return {"metadata": {key: value}}


def role(*rules: KubeObject, owners: tuple[KubeObject, ...] = (OWNER,)) -> KubeObject:
    """Return a Role."""
    return {"metadata": {"name": "mine", "ownerReferences": list(owners)}, "rules": list(rules)}


def binding(reference: Mapping[str, str], **subject: str) -> KubeObject:
    """Return a RoleBinding named `mine`."""
    return {
        "metadata": {"name": "mine", "ownerReferences": [OWNER]},
        "roleRef": {"apiGroup": GROUP, **reference},
        "subjects": [{"kind": "ServiceAccount", "name": "trainer", **subject}],
    }


AGENTS: Final = {"kind": "ClusterRole", "name": "inplace-agent"}
GIVEN: Final = [  # by admission, to every Pod
    {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for key in ("not-ready", "unreachable")
]
ON_A_POD: Final[Mapping[str, KubeObject]] = {
    "another image": {"spec": {"containers": [{"name": "worker", "image": "evil"}]}},
    "a toleration": {"spec": {"tolerations": [*GIVEN, {"operator": "Exists"}]}},
    "a label": metadata("labels", {"a": "b"}),
    "no owner": metadata("ownerReferences", None),
    "no finalizer": metadata("finalizers", None),
    "an announcement": metadata("annotations", {wire.EPOCH: "9"}),
    "no announcement": metadata("annotations", {wire.EPOCH: None}),
    "another annotation": metadata("annotations", {"a": "b"}),
}
RIGHTS: Final[Mapping[str, tuple[str, KubeObject]]] = {
    "a Role that reads Secrets": ("roles", role(READS | {"apiGroups": [""], "resources": ["secrets"]})),
    "a Role that reads all JobSets": ("roles", role({key: READS[key] for key in READS if key != "resourceNames"})),
    "a Role that reads another JobSet": ("roles", role(READS | {"resourceNames": ["other"]})),
    "a Role that deletes its JobSet": ("roles", role(READS | {"verbs": ["delete"]})),
    "a Role with a second rule": ("roles", role(READS, READS | {"apiGroups": [""], "resources": ["pods"]})),
    "a Role of no JobSet": ("roles", role(READS, owners=())),
    "the controller's own rights": ("rolebindings", binding({"kind": "ClusterRole", "name": "inplace-controller"})),
    "the role view": ("rolebindings", binding({"kind": "ClusterRole", "name": "view"})),
    "a Role of another name": ("rolebindings", binding({"kind": "Role", "name": "another"})),
    "an account of another namespace": ("rolebindings", binding(AGENTS, namespace="kube-system")),
    "a person": ("rolebindings", binding(AGENTS) | {"subjects": [{"kind": "User", "name": "jane", "apiGroup": GROUP}]}),
}


@dataclass(frozen=True, slots=True)
class Thief:
    """A namespace with one Pod, and who has the token."""

    namespace: str
    token: ApiClient

    async def patch(self, change: KubeObject) -> str:
        """Return why a change of the Pod is refused; "" if it is not."""
        return await self._send("PATCH", f"{CORE}/{self.namespace}/pods/{POD}", change)

    async def create(self, plural: str, obj: KubeObject) -> str:
        """Return why an object is refused; "" if it is not."""
        placed = {**obj, "subjects": [{"namespace": self.namespace, **one} for one in obj.get("subjects", ())]}
        body = placed if plural == "rolebindings" else obj
        for one in body.get("subjects", ()):
            if one["kind"] == "User":
                del one["namespace"]
        return await self._send("POST", f"{RBAC}/namespaces/{self.namespace}/{plural}", body)

    async def _send(self, method: str, path: str, body: KubeObject) -> str:
        kind = "application/strategic-merge-patch+json" if method == "PATCH" else "application/json"
        try:
            await self.token.text(method, path, body=body, query=DRY, content_type=kind)
        except UnexpectedStatus as error:
            return f"{error.status} {error.body}"
        return ""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def thief(plane: ControlPlane) -> AsyncIterator[Thief]:
    """Give the token of an installed controller, and a Pod that waits behind a gate."""
    async with plane.client() as admin:
        await install(admin)
        for file in ("controller.yaml", "agents.yaml"):
            await admin.create(list(yaml.safe_load_all((DEPLOY / "rbac" / file).read_text())))
        await admin.create(policies("controller.yaml"))
        namespace = await plane.create_namespace("team")
        await admin.post(f"{CORE}/{namespace}/pods", pod(POD))
        another = {"metadata": {"name": "another"}, "rules": [READS]}
        await admin.post(f"{RBAC}/namespaces/{namespace}/roles", another)
        kubeconfig = await plane.service_account_kubeconfig("inplace-system", "inplace-controller")
        async with plane.client(kubeconfig) as token:
            holder = Thief(namespace, token)

            async def is_active() -> bool:
                refused = await holder.patch(ON_A_POD["a label"])
                return "controller.inplace.dev" in refused and bool(await holder.create(*RIGHTS["a Role of no JobSet"]))

            await eventually(is_active, True)
            yield holder


@pytest.mark.parametrize("what", [*ON_A_POD, *RIGHTS])
async def test_refused(thief: Thief, what: str) -> None:
    """The token changes of a Pod what placement needs, and gives an account an agent's rights: nothing else."""
    refused = await (thief.patch(ON_A_POD[what]) if what in ON_A_POD else thief.create(*RIGHTS[what]))
    assert refused.startswith("403 "), refused
    assert "the JobSet controller may" in refused or "attempting to grant RBAC permissions" in refused, refused


@pytest.mark.parametrize(
    "change",
    [
        {"spec": {"schedulingGates": None, "nodeSelector": {"rack": "a"}}},
        {"spec": {"affinity": {"nodeAffinity": {}}}},
        {"spec": {"activeDeadlineSeconds": 1}},
        metadata("annotations", {wire.INDEX_FAILURES: None, wire.INDEX_FAILURES_IGNORED: None}),
    ],
    ids=["place it", "avoid a node", "end it", "reset its index"],
)
async def test_what_it_does_is_allowed(thief: Thief, change: KubeObject) -> None:
    """Every change that the controller makes to a Pod, and the rights of an account with the longest names."""
    assert await thief.patch(change) == ""
    long = "n" * 253
    for account, jobset in (("trainer", "train"), (long, long)):
        owner = OWNER | {"name": jobset}
        for obj in permissions(thief.namespace, account, jobset, owner=owner):
            reference = obj.get("roleRef") or {}
            if reference.get("kind") != "Role":  # a dry run stores no Role that could be bound
                assert await thief.create(f"{obj['kind'].lower()}s", obj) == ""
