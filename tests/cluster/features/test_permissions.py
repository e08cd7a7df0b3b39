"""
deploy/rbac is enough, and every right in it is needed: the audit log of all feature tests shows it.

conftest.py runs this file last. It judges only a whole run, because some of the tests need only some rights.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from inplace.common.kube.client import KubeClient
from inplace.common.kube.errors import Forbidden
from inplace.common.kube.resources import (
    EVICTIONS,
    JOBS,
    JOBSETS,
    ROLE_BINDINGS,
    SCHEDULING_WORKLOADS,
    KubeObject,
    Resource,
)
from testbed.control_plane import ControlPlane
from testbed.go_programs import kubernetes_version
from testbed.kube_client import create, kube_client
from tests.cluster.features.audited import granted, requests_of, right_of
from tests.cluster.features.served import NAMESPACE, RBAC, USER, ServedController, roles
from tests.cluster.features.stage import Stage
from tests.controller.manifests import jobset, replicated_job

pytestmark = pytest.mark.asyncio(loop_scope="session")

FOLDER: Final = Path(__file__).parent
# No request uses these rights: the server checks them when an object is created with blockOwnerDeletion, and when a
# binding is created. See below.
ASKED_BY_THE_SERVER: Final = {
    ("jobset.x-k8s.io", "jobsets/finalizers", "update"),
    ("rbac.authorization.k8s.io", "clusterroles", "bind"),
}
GIVEN_TO_EVERYBODY: Final = {("authorization.k8s.io", "selfsubjectaccessreviews", "create")}  # system:basic-user
SECRETS: Final = Resource("", "v1", "secrets", "Secret")
ROLES: Final = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False)
ROLE: Final = {"apiVersion": ROLES.api_version, "kind": ROLES.kind}


async def test_nothing_was_forbidden(audit_folder: Path, controller: ServedController) -> None:
    """In no test did the server refuse the controller a request for a missing right."""
    events = list(requests_of(audit_folder, USER))
    refused = {right_of(event) for event in events if event["responseStatus"]["code"] == 403}
    assert events
    assert refused == set()
    assert "forbidden" not in controller.log.lower()


async def test_every_right_is_used(
    request: pytest.FixtureRequest, audit_folder: Path, controller: ServedController
) -> None:
    """Some test used each verb on each resource that the roles grant."""
    run = {item.path.name for item in request.session.items}
    missing = {path.name for path in FOLDER.glob("test_*.py")} - run
    if missing or request.config.option.keyword:
        pytest.skip(f"judges a whole run of this folder, and something was left out: {sorted(missing) or '-k'}")
    used = {right_of(event) for event in requests_of(audit_folder, USER)}
    unused = {right for right in granted(roles()) - used if right[0] != EVICTIONS.group}  # alpha, its gate is off
    if kubernetes_version() < "v1.37":  # no server of this version serves them
        unused = {right for right in unused if right[0] != SCHEDULING_WORKLOADS.group}
    assert unused == ASKED_BY_THE_SERVER
    assert used - granted(roles()) <= GIVEN_TO_EVERYBODY


async def test_no_traceback_was_logged(controller: ServedController) -> None:
    """In no test did the controller log a traceback."""
    assert "Traceback" not in controller.log
    assert [line for line in controller.log.splitlines() if '"exception"' in line] == []


async def test_a_job_cannot_be_owned_without_the_finalizers_right(
    plane: ControlPlane, admin: KubeClient, stage: Stage
) -> None:
    """With OwnerReferencesPermissionEnforcement, creating a Job needs update on jobsets/finalizers."""
    (job,) = (await stage.start(jobset(strategy=None))).values()
    template = job["spec"]["template"]["spec"]
    for name, rights in (("with", ["jobsets/finalizers"]), ("without", [])):
        account = f"{name}-{stage.namespace}"
        rules: list[dict[str, Any]] = [{"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["create"]}]
        if rights:
            rules.append({"apiGroups": ["jobset.x-k8s.io"], "resources": rights, "verbs": ["update"]})
        await grant(admin, account, rules)
        kubeconfig = await plane.service_account_kubeconfig(NAMESPACE, account)
        mine: dict[str, Any] = {
            "apiVersion": JOBS.api_version,
            "kind": JOBS.kind,
            "metadata": {"name": f"owned-{name}", "ownerReferences": job["metadata"]["ownerReferences"]},
            "spec": {"template": {"spec": template}},
        }
        async with kube_client(kubeconfig) as client:
            if rights:
                await client.create(JOBS, stage.namespace, mine)
            else:
                with pytest.raises(Forbidden, match="blockOwnerDeletion"):
                    await client.create(JOBS, stage.namespace, mine)


async def test_what_it_may_not(plane: ControlPlane) -> None:
    """The controller may neither read Secrets nor create JobSets or change their specs."""
    kubeconfig = await plane.service_account_kubeconfig(NAMESPACE, "inplace-controller")
    async with kube_client(kubeconfig) as client:
        with pytest.raises(Forbidden):
            await client.list(SECRETS, "default")
        with pytest.raises(Forbidden):
            await client.create(JOBSETS, "default", jobset(jobs=[replicated_job()]))
        with pytest.raises(Forbidden):
            await client.patch(JOBSETS, "default", "train", {"spec": {"suspend": True}})


@pytest.mark.parametrize(
    ("role", "rules"),
    [
        ("cluster-admin", None),
        ("reads-secrets", [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]),
        ("updates-pods", [{"apiGroups": [""], "resources": ["pods"], "verbs": ["update"]}]),
        ("announces", [{"apiGroups": ["inplace.dev"], "resources": ["epochs"], "verbs": ["announce"]}]),
    ],
)
async def test_no_right_that_the_controller_lacks_can_be_bound(
    plane: ControlPlane, admin: KubeClient, stage: Stage, role: str, rules: list[dict[str, Any]] | None
) -> None:
    """Its token binds the agents' ClusterRole and what it may itself: no right that it lacks. It ends no binding."""
    jobs = [{"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["create"]}]
    await create(admin, [ROLE | {"metadata": {"name": "creates-jobs"}, "rules": jobs}])
    if rules is not None:
        await create(admin, [ROLE | {"metadata": {"name": role}, "rules": rules}])
    await create(admin, yaml.safe_load_all((RBAC.parent / "agents.yaml").read_text()))
    kubeconfig = await plane.service_account_kubeconfig(NAMESPACE, "inplace-controller")
    async with kube_client(kubeconfig) as client:
        await client.create(ROLE_BINDINGS, stage.namespace, binding_to("inplace-agent"))
        await client.create(ROLE_BINDINGS, stage.namespace, binding_to("creates-jobs"))
        with pytest.raises(Forbidden, match="attempting to grant RBAC permissions not currently held"):
            await client.create(ROLE_BINDINGS, stage.namespace, binding_to(role))
        with pytest.raises(Forbidden):
            await client.list(ROLE_BINDINGS, stage.namespace)
        with pytest.raises(Forbidden):
            await client.delete(ROLE_BINDINGS, stage.namespace, "to-inplace-agent")
        with pytest.raises(Forbidden):
            await client.patch(ROLE_BINDINGS, stage.namespace, "to-inplace-agent", {"subjects": []})


def binding_to(role: str) -> KubeObject:
    """Return a binding of a ClusterRole to the namespace's default account."""
    return {
        "apiVersion": ROLE_BINDINGS.api_version,
        "kind": ROLE_BINDINGS.kind,
        "metadata": {"name": f"to-{role}"},
        "roleRef": {"apiGroup": ROLES.group, "kind": ROLES.kind, "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "default"}],
    }


async def grant(admin: KubeClient, account: str, rules: list[dict[str, Any]]) -> None:
    """Give a new ServiceAccount rights in all namespaces."""
    binding = Resource(ROLES.group, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False)
    head = {"apiVersion": ROLES.api_version, "metadata": {"name": account}}
    await admin.create(ROLES, None, ROLE | head | {"rules": rules})
    subject = {"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}
    reference = {"apiGroup": ROLES.group, "kind": ROLES.kind, "name": account}
    await admin.create(binding, None, head | {"kind": binding.kind, "roleRef": reference, "subjects": [subject]})
