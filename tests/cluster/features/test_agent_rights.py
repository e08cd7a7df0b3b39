"""The right of agents that the controller adds: bound with the shipped permissions, for each account of the Pods."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest
import yaml

from inplace.common.kube.client import KubeClient
from inplace.common.kube.resources import JOBS, ROLE_BINDINGS, Resource
from inplace.common.wire import names as wire
from inplace.controller.act.job_settings import JobSettings
from inplace.controller.injection.pod import InjectOptions
from testbed.control_plane import ControlPlane
from testbed.kube_client import create
from testbed.waiting import eventually
from tests.cluster.features.served import ACCOUNT, NAMESPACE, RBAC, ServedController
from tests.cluster.features.stage import Stage
from tests.cluster.test_controller_real import running
from tests.controller.manifests import changed, jobset, replicated_job

pytestmark = pytest.mark.asyncio(loop_scope="session")

REVIEWS: Final = Resource("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False)
ADDING: Final = JobSettings(agent=InjectOptions(agent_image="inplace-agent:1"))
ANNOUNCE: Final = {"group": "inplace.dev", "resource": "epochs", "verb": "announce"}
PATCH_PODS: Final = {"group": "", "resource": "pods", "verb": "patch"}
UPDATE_PODS: Final = PATCH_PODS | {"verb": "update"}
READ_JOBSETS: Final = {"group": wire.API_GROUP, "resource": "jobsets", "verb": "watch"}


@asynccontextmanager
async def adding_agents(plane: ControlPlane, admin: KubeClient, controller: ServedController) -> AsyncIterator[None]:
    """Run a controller that adds agents in the place of the served one, as its account."""
    await create(admin, yaml.safe_load_all((RBAC.parent / "agents.yaml").read_text()))
    kubeconfig = await plane.service_account_kubeconfig(NAMESPACE, ACCOUNT)
    async with controller.replaced(), running(plane, None, kubeconfig=kubeconfig, job_settings=ADDING):
        yield


async def may(client: KubeClient, namespace: str, account: str, what: Mapping[str, str]) -> bool:
    """Say whether RBAC allows an account something in a namespace."""
    user = f"system:serviceaccount:{namespace}:{account}"
    spec = {"user": user, "resourceAttributes": {**what, "namespace": namespace}}
    head = {"apiVersion": REVIEWS.api_version, "kind": REVIEWS.kind}
    return bool((await client.create(REVIEWS, None, head | {"spec": spec}))["status"]["allowed"])


async def lose(stage: Stage, job: str) -> None:
    """Delete a Job, and wait until the controller has created it anew."""
    old = (await stage.job_uids())[job]
    await stage.client.delete(JOBS, stage.namespace, job, propagation="Background")

    async def is_new() -> bool:
        return (await stage.job_uids()).get(job, old) != old

    await eventually(is_new, True)


async def test_the_accounts_of_its_pods_may_announce(
    plane: ControlPlane, admin: KubeClient, controller: ServedController, stage: Stage
) -> None:
    """Each account that runs Pods of the group gets what an agent needs, before its Jobs exist; no other does."""
    path = "template.spec.template.spec.serviceAccountName"
    jobs = [changed(replicated_job("a"), path, "trainer"), replicated_job("b")]
    async with adding_agents(plane, admin, controller):
        await stage.start(jobset(jobs=jobs))
        (binding,) = (await admin.list(ROLE_BINDINGS, stage.namespace))["items"]
        uid = (await stage.jobset())["metadata"]["uid"]
        assert binding["metadata"]["name"] == f"inplace-agent-train-{uid[:8]}"
        assert [one["name"] for one in binding["subjects"]] == ["default", "trainer"]
        (owner,) = binding["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["controller"]) == (uid, True)

        async def rights() -> list[bool]:
            asked = (READ_JOBSETS, PATCH_PODS, ANNOUNCE, UPDATE_PODS)
            return [await may(admin, stage.namespace, "trainer", what) for what in asked]

        await eventually(rights, [True, True, True, False])
        assert await may(admin, stage.namespace, "default", ANNOUNCE)
        assert not await may(admin, stage.namespace, "another", ANNOUNCE)
        assert await stage.warnings() == []


async def test_a_binding_that_is_there_is_enough(
    plane: ControlPlane, admin: KubeClient, controller: ServedController, stage: Stage
) -> None:
    """A Job that comes back finds its JobSet's binding, and brings it back where somebody deleted it."""
    async with adding_agents(plane, admin, controller):
        await stage.start(jobset(jobs=[replicated_job(replicas=2)]))
        (binding,) = (await admin.list(ROLE_BINDINGS, stage.namespace))["items"]

        async def bindings() -> list[Any]:
            return [one["metadata"]["name"] for one in (await admin.list(ROLE_BINDINGS, stage.namespace))["items"]]

        name = binding["metadata"]["name"]
        await lose(stage, "train-workers-0")
        assert await bindings() == [name]
        await admin.delete(ROLE_BINDINGS, stage.namespace, name)
        await lose(stage, "train-workers-1")
        assert await bindings() == [name]


async def test_a_group_that_is_recreated_needs_no_right(
    plane: ControlPlane, admin: KubeClient, controller: ServedController, stage: Stage
) -> None:
    """Its Pods have no agent, so their account gets nothing."""
    async with adding_agents(plane, admin, controller):
        await stage.start(jobset(strategy="Recreate"))
        assert (await admin.list(ROLE_BINDINGS, stage.namespace))["items"] == []
