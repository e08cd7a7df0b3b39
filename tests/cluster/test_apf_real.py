"""The objects of deploy/apf on a real kube-apiserver: they are accepted, take effect, and take the right requests."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from inplace.agent.announce.jobset_requests import announcement_request, list_request, watch_request
from inplace.agent.settings.config import AgentConfig
from inplace.common.kube.http.http1 import Http1Transport
from inplace.common.kube.http.request import Request
from inplace.common.kube.kubeconfig import read_kubeconfig
from inplace.common.kube.resources import KubeObject
from testbed.api_client import ApiClient
from testbed.binaries import Binaries
from testbed.control_plane import ControlPlane
from testbed.waiting import until
from tests.deploy.apf_objects import FLOW_SCHEMAS, PRIORITY_LEVELS, RESOURCES, apf_object, apf_objects

pytestmark = pytest.mark.asyncio(loop_scope="session")

FLOW_SCHEMA, PRIORITY_LEVEL = "x-kubernetes-pf-flowschema-uid", "x-kubernetes-pf-prioritylevel-uid"
IN_EFFECT_S_MAX = 30.0  # the server's own informer sees a new object within a second
REQUEST_S_MAX = 10.0


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def plane(binaries: Binaries) -> AsyncIterator[ControlPlane]:
    """Run a control plane for this module: flow control is cluster-wide, and other tests measure without it."""
    async with ControlPlane(binaries) as running:
        async with running.client() as api:
            for found in apf_objects():
                await api.post(RESOURCES[found["kind"]].path(), found, fieldValidation="Strict")
        yield running


async def flow_of(plane: ControlPlane, kubeconfig: Path, request: Request) -> tuple[str, str]:
    """Send a request as an agent does, whatever the answer; return FlowSchema and level by name."""
    transport = Http1Transport(read_kubeconfig(str(kubeconfig)))
    try:
        async with transport.stream(request, timeout_s=REQUEST_S_MAX) as stream:
            uids = stream.headers[FLOW_SCHEMA], stream.headers[PRIORITY_LEVEL]
    finally:
        await transport.close()
    async with plane.client() as api:
        return await name_of(api, FLOW_SCHEMAS.path(), uids[0]), await name_of(api, PRIORITY_LEVELS.path(), uids[1])


async def name_of(api: ApiClient, path: str, uid: str) -> str:
    """Return the name of the object with this uid."""
    items: list[KubeObject] = (await api.get(path))["items"]
    return next(str(item["metadata"]["name"]) for item in items if item["metadata"]["uid"] == uid)


async def in_effect(plane: ControlPlane, kubeconfig: Path, request: Request, wanted: str) -> tuple[str, str]:
    """Send requests until the server knows the objects; return the last request's FlowSchema and level."""

    async def wanted_one() -> tuple[str, str] | None:
        landed = await flow_of(plane, kubeconfig, request)
        return landed if landed[0] == wanted else None

    found: tuple[str, str] = await until(wanted_one, f"a request in {wanted}", timeout_s=IN_EFFECT_S_MAX)
    return found


async def test_the_server_keeps_the_objects_as_written(plane: ControlPlane) -> None:
    """Strict validation found no unknown field, defaulting changed nothing that is written, and no level dangles."""
    async with plane.client() as api:
        for found in apf_objects():
            path = RESOURCES[found["kind"]].path(None, found["metadata"]["name"])
            stored = await api.get(path)
            assert covers(stored["spec"], found["spec"]), stored["spec"]
            if found["kind"] == "FlowSchema":

                async def judged(path: str = path) -> str:
                    return dangling(await api.get(path))

                assert await until(judged, "a condition Dangling", timeout_s=IN_EFFECT_S_MAX) == "False"


def covers(stored: object, written: object) -> bool:
    """Return whether all written fields are stored; an omitted false counts as stored."""
    if isinstance(written, dict) and isinstance(stored, dict):
        return all(covers(stored.get(key, False), value) for key, value in written.items())
    if isinstance(written, list) and isinstance(stored, list):
        return len(written) == len(stored) and all(covers(*pair) for pair in zip(stored, written, strict=True))
    return stored == written


def dangling(stored: KubeObject) -> str:
    """Return the status of the condition Dangling."""
    conditions = (stored.get("status") or {}).get("conditions") or []
    return next((str(condition["status"]) for condition in conditions if condition["type"] == "Dangling"), "")


async def test_an_agents_requests_land_in_its_level(plane: ControlPlane) -> None:
    """Watch, list and patch of any namespace's account: the answer's headers name our FlowSchema and level."""
    namespace = await plane.create_namespace("team")
    kubeconfig = await plane.service_account_kubeconfig(namespace, "whoever")
    config = AgentConfig(namespace, "train-w-0-0", "train")
    watch = watch_request(config, as_table=True, resource_version="0", jitter=0.0)
    for request in (watch, list_request(config, as_table=True, consistent=False), announcement_request(config, 1)):
        landed = await in_effect(plane, kubeconfig, request, "inplace-agents")
        assert landed == ("inplace-agents", "inplace-agents")


async def test_the_controllers_requests_do_not(plane: ControlPlane) -> None:
    """Its reads go to workload-high, its Lease to leader-election."""
    async with plane.client() as api:
        await api.post("/api/v1/namespaces", {"metadata": {"name": "inplace-system"}})
    kubeconfig = await plane.service_account_kubeconfig("inplace-system", "inplace-controller")
    pods = Request("GET", "/api/v1/pods", {})
    lease = Request("GET", "/apis/coordination.k8s.io/v1/namespaces/inplace-system/leases/inplace-controller", {})
    assert (await in_effect(plane, kubeconfig, pods, "inplace-controller"))[1] == "workload-high"
    assert (await in_effect(plane, kubeconfig, lease, "inplace-controller-leader-election"))[1] == "leader-election"


async def test_others_keep_the_default(plane: ControlPlane) -> None:
    """An informer that watches the JobSets of all namespaces keeps the default level."""
    namespace = await plane.create_namespace("kueue")
    kubeconfig = await plane.service_account_kubeconfig(namespace, "kueue")
    everywhere = Request("GET", "/apis/jobset.x-k8s.io/v1alpha2/jobsets", {})
    assert await flow_of(plane, kubeconfig, everywhere) == ("service-accounts", "workload-low")
    assert apf_object("FlowSchema", "inplace-agents")["spec"]["matchingPrecedence"] < 9000
