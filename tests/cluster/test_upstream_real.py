"""A cluster that ran upstream's JobSet controller: deploy/ replaces its CRD, and every stored JobSet works on."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from testbed.api_client import ApiClient, connect
from testbed.binaries import Binaries
from testbed.control_plane import ControlPlane
from testbed.kubectl import done, kubectl
from testbed.waiting import until
from tests.cluster.test_admission_real import ACTIVE_S_MAX
from tests.cluster.test_crd_real import DEFINITIONS, install, jobsets, refusal
from tests.controller.manifests import changed, jobset
from tests.deploy.upstream_objects import STORED, upstream_crd, webhook

pytestmark = pytest.mark.asyncio(loop_scope="session")

CRD = f"{DEFINITIONS}/jobsets.jobset.x-k8s.io"
JOBSETS = jobsets("default")
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
MANAGER = "helm"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def plane(binaries: Binaries) -> AsyncIterator[ControlPlane]:
    """Run a control plane with the objects of upstream's Helm chart and controller."""
    async with ControlPlane(binaries) as running, running.client() as api:
        await api.post(DEFINITIONS, upstream_crd(), fieldManager=MANAGER)

        await install(api)  # it finds the CRD and waits until it is served
        for name, (manifest, status) in STORED.items():
            await api.post(JOBSETS, changed(manifest, "metadata.name", name))
            await api.patch(f"{JOBSETS}/{name}/status", {"status": status})
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def before(plane: ControlPlane) -> dict[str, KubeObject]:
    """Return every JobSet as it was before the take-over."""
    async with plane.client() as api:
        return {each["metadata"]["name"]: each for each in (await api.get(JOBSETS))["items"]}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def taken_over(plane: ControlPlane, before: dict[str, KubeObject]) -> AsyncIterator[ApiClient]:
    """Install as docs/install.md says; check that force is needed, and kubectl's message without it."""
    async with plane.client() as api:
        ended = await kubectl(plane.kubeconfig, "apply", "--server-side", "-k", "deploy/crd")
        assert ended.code != 0
        assert f'conflict with "{MANAGER}"' in ended.err or f'conflicts with "{MANAGER}"' in ended.err, ended.err
        assert "additionalPrinterColumns" in ended.err or ".spec.versions" in ended.err
        await done(plane.kubeconfig, "apply", "--server-side", "--force-conflicts", "-k", "deploy/")

        async def has_our_rules() -> bool:
            return await refusal(api.post(JOBSETS, jobset("a.b"), dryRun="All")) is not None

        await until(has_our_rules, "our rules of the CRD", timeout_s=ACTIVE_S_MAX)
        yield api


async def test_nothing_is_left_to_apply(plane: ControlPlane, taken_over: ApiClient) -> None:
    """After the forced apply the CRD equals ours, and the next apply needs no force."""
    ended = await kubectl(plane.kubeconfig, "diff", "--server-side", "-k", "deploy/")
    assert (ended.code, ended.out) == (0, "")
    await done(plane.kubeconfig, "apply", "--server-side", "-k", "deploy/")
    names = (await taken_over.get(CRD))["spec"]["names"]
    assert names["shortNames"] == ["js"]


@pytest.mark.parametrize("name", STORED)
async def test_a_stored_jobset_keeps_all_that_it_says(
    taken_over: ApiClient, before: dict[str, KubeObject], name: str
) -> None:
    """A stored JobSet keeps every value of spec and status, gets our CRD's defaults, and is at the same epoch."""
    after = await taken_over.get(f"{JOBSETS}/{name}")
    assert differences(before[name]["spec"], after["spec"]) == []
    was, is_ = before[name].get("status") or {}, after.get("status") or {}
    assert differences(was, is_) == []
    assert wire.epochs_of_status(is_) == wire.epochs_of_status(was)
    assert after["metadata"]["uid"] == before[name]["metadata"]["uid"]


def differences(old: Any, new: Any, path: str = "") -> list[str]:
    """Return the paths of values that are missing now."""
    if isinstance(old, dict):
        absent = object()
        return [
            each for key, value in old.items() for each in differences(value, new.get(key, absent), f"{path}.{key}")
        ]
    if isinstance(old, list):
        assert len(old) == len(new)
        pairs = enumerate(zip(old, new, strict=True))
        return [each for index, (was, is_) in pairs for each in differences(was, is_, f"{path}[{index}]")]
    return [] if old == new else [path]


@pytest.mark.parametrize("name", STORED)
async def test_a_stored_jobset_lives_on(plane: ControlPlane, taken_over: ApiClient, name: str) -> None:
    """A stored JobSet takes our controller's status in both encodings, can be labelled, and can be deleted."""
    kubeconfig = await plane.service_account_kubeconfig("inplace-system", "inplace-controller")
    path = f"{JOBSETS}/{name}"
    status = (await taken_over.get(path)).get("status") or {}
    current, previous = (status.get(key, -1) for key in (wire.CURRENT_ATTEMPT, wire.PREVIOUS_ATTEMPT))
    epochs = wire.status_of_epochs(current + 2, previous + 1)
    async with connect(kubeconfig) as controller:
        written = await controller.patch(f"{path}/status", {"status": {"restarts": 9} | epochs})
    assert written["status"] == status | {"restarts": 9} | epochs
    await taken_over.patch(path, {"metadata": {"labels": {"a": "b"}}})
    await taken_over.patch(path, {"spec": {"suspend": True}})
    await taken_over.delete(path, dryRun="All")


async def test_a_webhook_without_its_server_is_in_everybodys_way(taken_over: ApiClient) -> None:
    """Without its server, upstream's webhook refuses every new JobSet, and the message names the webhook."""
    await taken_over.post(WEBHOOKS, webhook())

    async def blocks() -> bool:
        said = str(await refusal(taken_over.post(JOBSETS, jobset("new"), dryRun="All")))
        return "failed calling webhook" in said and "vjobset.kb.io" in said

    await until(blocks, "a webhook that blocks", timeout_s=ACTIVE_S_MAX)
    await taken_over.delete(f"{WEBHOOKS}/{webhook()['metadata']['name']}")

    async def passes() -> bool:
        return await refusal(taken_over.post(JOBSETS, jobset("new"), dryRun="All")) is None

    await until(passes, "no webhook any more", timeout_s=ACTIVE_S_MAX)


async def test_people_see_upstreams_columns_first(plane: ControlPlane, taken_over: ApiClient) -> None:
    """`kubectl get jobsets` has upstream's columns at upstream's positions; one title says more."""
    table = (await done(plane.kubeconfig, "get", "jobsets")).splitlines()[0].split()
    assert table[:6] == ["NAME", "TERMINALSTATE", "RECREATIONS", "COMPLETED", "SUSPENDED", "AGE"]
    assert json.loads(await done(plane.kubeconfig, "get", "js", "running", "-o", "json"))["kind"] == "JobSet"
