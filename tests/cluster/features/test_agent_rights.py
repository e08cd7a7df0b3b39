"""The right of agents that the controller adds: bound with the shipped permissions, for each account of the Pods."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest
import yaml

from inplace.common.injection.pod import InjectOptions
from inplace.common.kube.client import KubeClient
from inplace.common.kube.resources import JOBS, ROLE_BINDINGS, ROLES
from inplace.common.wire import names as wire
from inplace.controller.act.job_settings import JobSettings
from inplace.controller.api.access_review import may
from testbed.control_plane import ControlPlane
from testbed.kube_client import create
from testbed.waiting import eventually
from tests.cluster.features.served import ACCOUNT, NAMESPACE, RBAC, ServedController
from tests.cluster.features.stage import Stage
from tests.cluster.test_controller_real import running
from tests.controller.manifests import changed, jobset, replicated_job

pytestmark = pytest.mark.asyncio(loop_scope="session")

ADDING: Final = JobSettings(agent=InjectOptions(agent_image="inplace-agent:1"))
ANNOUNCE: Final = {"group": "inplace.dev", "resource": "epochs", "verb": "announce"}
PATCH_PODS: Final = {"group": "", "resource": "pods", "verb": "patch"}
UPDATE_PODS: Final = PATCH_PODS | {"verb": "update"}
JOBSETS_LISTED: Final = {"group": wire.API_GROUP, "resource": "jobsets", "verb": "list"}
ITS_JOBSET: Final = JOBSETS_LISTED | {"name": "train"}
ANOTHER: Final = JOBSETS_LISTED | {"name": "other"}
ACCOUNT_OF: Final = "template.spec.template.spec.serviceAccountName"


@asynccontextmanager
async def adding_agents(plane: ControlPlane, admin: KubeClient, controller: ServedController) -> AsyncIterator[None]:
    """Run a controller that adds agents in the place of the served one, as its account."""
    await create(admin, yaml.safe_load_all((RBAC.parent / "agents.yaml").read_text()))
    kubeconfig = await plane.service_account_kubeconfig(NAMESPACE, ACCOUNT)
    async with controller.replaced(), running(plane, None, kubeconfig=kubeconfig, job_settings=ADDING):
        yield


async def rights(client: KubeClient, namespace: str, account: str) -> list[bool]:
    """Say what RBAC allows: its JobSet, patching Pods, announcing; then another JobSet, all JobSets, updating Pods."""
    asked = (ITS_JOBSET, PATCH_PODS, ANNOUNCE, ANOTHER, JOBSETS_LISTED, UPDATE_PODS)
    return [await may(client, namespace, account, what) for what in asked]


AN_AGENTS: Final = [True, True, True, False, False, False]
NONE: Final = [False] * len(AN_AGENTS)


async def lose(stage: Stage, job: str) -> None:
    """Delete a Job, and wait until the controller has created it anew."""
    old = (await stage.job_uids())[job]
    await stage.client.delete(JOBS, stage.namespace, job, propagation="Background")

    async def is_new() -> bool:
        return (await stage.job_uids()).get(job, old) != old

    await eventually(is_new, True)


@pytest.mark.attack
async def test_the_accounts_of_its_pods_get_an_agents_rights_and_no_more(
    plane: ControlPlane, admin: KubeClient, controller: ServedController, stage: Stage
) -> None:
    """Each account of the group's Pods reads this JobSet and announces, once the Pods are there; no other does."""
    jobs = [changed(replicated_job("a"), ACCOUNT_OF, "trainer"), replicated_job("b")]
    async with adding_agents(plane, admin, controller):
        await stage.start(jobset(jobs=jobs))
        assert (await admin.list(ROLES, stage.namespace))["items"] == []
        await stage.make_pods()
        await eventually(lambda: rights(admin, stage.namespace, "trainer"), AN_AGENTS)
        await eventually(lambda: rights(admin, stage.namespace, "default"), AN_AGENTS)
        assert await rights(admin, stage.namespace, "another") == NONE
        uid = (await stage.jobset())["metadata"]["uid"]
        for resource, count in ((ROLES, 2), (ROLE_BINDINGS, 4)):
            made = (await admin.list(resource, stage.namespace))["items"]
            assert [one["metadata"]["ownerReferences"][0]["uid"] for one in made] == [uid] * count
        assert await stage.warnings() == []


@pytest.mark.attack
async def test_a_jobset_is_no_weapon_against_an_account(
    plane: ControlPlane, admin: KubeClient, controller: ServedController, stage: Stage
) -> None:
    """Who may only create JobSets names an operator's account: its Pods are refused, and nothing is bound.

    Where its Pods are let in the operator stays as free as it was: admission restricts who may announce.
    """
    own = {"apiGroups": [""], "resources": ["pods"], "verbs": ["patch"]}
    head = {"metadata": {"name": "operator"}}
    subject = {"kind": "ServiceAccount", "name": "operator", "namespace": stage.namespace}
    reference = {"apiGroup": ROLES.group, "kind": "Role", "name": "operator"}
    await admin.create(ROLES, stage.namespace, head | {"rules": [own]})
    await admin.create(ROLE_BINDINGS, stage.namespace, head | {"roleRef": reference, "subjects": [subject]})
    before = [False, True, False, False, False, False]
    async with adding_agents(plane, admin, controller):
        await stage.start(jobset(jobs=[changed(replicated_job(), ACCOUNT_OF, "operator")]))
        assert await rights(admin, stage.namespace, "operator") == before
        await stage.make_pods()
        await eventually(lambda: rights(admin, stage.namespace, "operator"), [True, *before[1:]])


async def test_rights_that_are_there_are_enough(
    plane: ControlPlane, admin: KubeClient, controller: ServedController, stage: Stage
) -> None:
    """A Job that comes back finds its JobSet's binding, and brings it back where somebody deleted it."""
    async with adding_agents(plane, admin, controller):
        await stage.start(jobset(jobs=[replicated_job(replicas=2)]))
        await stage.make_pods()

        async def bindings() -> list[Any]:
            return [one["metadata"]["name"] for one in (await admin.list(ROLE_BINDINGS, stage.namespace))["items"]]

        uid = (await stage.jobset())["metadata"]["uid"]
        name = f"inplace-agent:train:default:{uid[:8]}"
        await eventually(bindings, [name, f"{name}:announce"])
        await admin.delete(ROLE_BINDINGS, stage.namespace, name)
        await lose(stage, "train-workers-1")
        await eventually(bindings, [name, f"{name}:announce"])


async def test_a_group_that_is_recreated_needs_no_right(
    plane: ControlPlane, admin: KubeClient, controller: ServedController, stage: Stage
) -> None:
    """Its Pods have no agent, so their account gets nothing."""
    async with adding_agents(plane, admin, controller):
        await stage.start(jobset(strategy="Recreate"))
        await stage.make_pods()
        await stage.be_ready("train-workers-0")
        await eventually(stage.job_uids, await stage.job_uids())
        assert (await admin.list(ROLE_BINDINGS, stage.namespace))["items"] == []
