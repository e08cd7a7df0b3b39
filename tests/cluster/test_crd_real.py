"""The CRD's cases on a real kube-apiserver: its cost estimate, its CEL, its messages."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import pytest
import pytest_asyncio

from inplace.common.kube.http.request import Request
from testbed.api_client import ApiClient, UnexpectedStatus
from testbed.control_plane import ControlPlane
from testbed.kube_client import kube_client
from tests.controller.manifests import changed, jobset
from tests.deploy.crd_cases import CREATES, STATUSES, UPDATES, Create, StatusChange, Update, crd
from tests.deploy.spec_cases import SPEC_CREATES, SPEC_UPDATES

pytestmark = pytest.mark.asyncio(loop_scope="session")

TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest_asyncio.fixture(loop_scope="session")
async def api(control_plane: ControlPlane) -> AsyncIterator[ApiClient]:
    """Give a client of a server that serves JobSets."""
    async with control_plane.client() as client:
        await install(client)
        yield client


async def install(client: ApiClient) -> None:
    """Install the CRD and wait until it is served."""
    await client.create([crd()])
    await until_served(client)


async def until_served(client: ApiClient) -> None:
    """Return when JobSets can be listed."""
    async with asyncio.timeout(30):
        while True:
            try:
                await client.get("/apis/jobset.x-k8s.io/v1alpha2/jobsets")
                return
            except UnexpectedStatus as error:
                if error.status not in (404, 429, 503):
                    raise
            await asyncio.sleep(0.1)


async def refusal(write: Awaitable[Any]) -> str | None:
    """Return the server's message; None when it accepted."""
    try:
        await write
    except UnexpectedStatus as error:
        return str(json.loads(error.body)["message"])
    return None


def check(words: tuple[str, ...], said: str | None) -> None:
    """Check that a write was accepted, or refused with all words in the message."""
    if not words:
        assert said is None
        return
    assert said is not None
    assert [word for word in words if word not in said] == []


def jobsets(namespace: str) -> str:
    """Return the path of the collection."""
    return f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{namespace}/jobsets"


def merged(obj: dict[str, Any], namespace: str) -> dict[str, Any]:
    """Return a manifest for another namespace."""
    return changed(obj, "metadata.namespace", namespace)


@pytest.mark.parametrize("case", CREATES + SPEC_CREATES, ids=lambda case: case.claim)
async def test_create(api: ApiClient, namespace: str, case: Create) -> None:
    """A manifest is accepted, or refused with the path, the value needed and the way there."""
    check(case.words, await refusal(api.post(jobsets(namespace), merged(case.manifest, namespace))))


@pytest.mark.parametrize("case", UPDATES + SPEC_UPDATES, ids=lambda case: case.claim)
async def test_update(api: ApiClient, namespace: str, case: Update) -> None:
    """A change is accepted, or refused because a running JobSet cannot follow it."""
    stored = await api.post(jobsets(namespace), merged(case.before or jobset(), namespace))
    path = f"{jobsets(namespace)}/train"
    check(case.words, await refusal(api.text("PUT", path, body=changed(stored, case.path, case.value))))


@pytest.mark.parametrize("case", STATUSES, ids=lambda case: case.claim)
async def test_status(api: ApiClient, namespace: str, case: StatusChange) -> None:
    """S and D only grow, D up to S, in either encoding."""
    stored = await api.post(jobsets(namespace), merged(jobset(), namespace))
    path = f"{jobsets(namespace)}/train/status"
    if case.before:
        await api.text("PUT", path, body=stored | {"status": case.before})
        stored = await api.get(f"{jobsets(namespace)}/train")
    check(case.words, await refusal(api.text("PUT", path, body=stored | {"status": case.after})))


async def test_the_agents_table_has_its_cells(control_plane: ControlPlane, api: ApiClient, namespace: str) -> None:
    """A Table of the JobSet carries the epochs, the strategy and the disable annotation."""
    manifest = merged(jobset(), namespace)
    manifest["metadata"]["annotations"] = {"jobset.sigs.k8s.io/disable-in-place-restart": "yes"}
    stored = await api.post(jobsets(namespace), manifest)
    await api.patch(f"{jobsets(namespace)}/train/status", {"status": {"syncedEpoch": 2, "deprecatedEpoch": 1}})
    async with kube_client(control_plane.kubeconfig) as client:
        request = Request("GET", f"{jobsets(namespace)}/train?includeObject=None", {"accept": TABLE})
        table = json.loads((await client.transport.request(request, timeout_s=10.0)).body)
    titles = [column["name"] for column in table["columnDefinitions"]]
    cells = dict(zip(titles, table["rows"][0]["cells"], strict=True))
    assert cells["SyncedEpoch"] == 2
    assert cells["DeprecatedEpoch"] == 1
    assert cells["RestartStrategy"] == "InPlaceRestart"
    assert cells["InPlaceDisabled"] == "yes"
    assert cells["UID"] == stored["metadata"]["uid"]
