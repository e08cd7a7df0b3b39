"""The harness itself: a real API server of the expected version runs, and its optional parts work."""

import os

import pytest

from testbed.api_client import UnexpectedStatus
from testbed.binaries import Binaries
from testbed.component import ControlPlaneError
from testbed.control_plane import ControlPlane
from testbed.go_programs import kubernetes_version
from testbed.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")

RESTART_RULE = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [88]}}

CONTAINER = {"name": "worker", "image": "registry.test/worker:1"}


@pytest.mark.skipif("KUBEBUILDER_ASSETS" in os.environ, reason="KUBEBUILDER_ASSETS decides the version")
async def test_reports_the_pinned_version(control_plane: ControlPlane) -> None:
    """The server says it is the release that is pinned, and that is a patch of the world asked for."""
    async with control_plane.client() as api:
        assert (await api.get("/version"))["gitVersion"] == kubernetes_version()
    assert kubernetes_version().startswith(f"v{os.environ.get('WORLD') or '1.37'}.")


async def test_keeps_the_restart_all_containers_rule(control_plane: ControlPlane, namespace: str) -> None:
    """A Pod whose container asks for RestartAllContainers is accepted, and the rule is not dropped."""
    container = {**CONTAINER, "restartPolicy": "Never", "restartPolicyRules": [RESTART_RULE]}
    pod = {"metadata": {"name": "worker"}, "spec": {"restartPolicy": "Never", "containers": [container]}}
    async with control_plane.client() as api:
        await api.post(f"/api/v1/namespaces/{namespace}/pods", pod)
        stored = await api.get(f"/api/v1/namespaces/{namespace}/pods/worker")
    assert stored["spec"]["containers"][0]["restartPolicyRules"] == [RESTART_RULE]


async def test_service_account_is_known_and_has_no_rights(control_plane: ControlPlane, namespace: str) -> None:
    """A ServiceAccount's kubeconfig authenticates as that account, and RBAC refuses ungranted rights."""
    kubeconfig = await control_plane.service_account_kubeconfig(namespace, "agent")
    async with control_plane.client(kubeconfig) as api:
        review = await api.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", {})
        with pytest.raises(UnexpectedStatus) as refusal:
            await api.get(f"/api/v1/namespaces/{namespace}/pods")
    assert review["status"]["userInfo"]["username"] == f"system:serviceaccount:{namespace}:agent"
    assert refusal.value.status == 403


async def test_restarted_apiserver_keeps_address_and_data(control_plane: ControlPlane, namespace: str) -> None:
    """After a crash of the API server an old kubeconfig reaches the new process, which still has the data."""
    kubeconfig = await control_plane.service_account_kubeconfig(namespace, "survivor")
    before = control_plane.apiserver_pid()
    await control_plane.restart_apiserver(kill=True)
    assert control_plane.apiserver_pid() != before
    async with control_plane.client(kubeconfig) as api:
        review = await api.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", {})
    assert review["status"]["userInfo"]["username"] == f"system:serviceaccount:{namespace}:survivor"


async def test_failed_start_shows_the_log_and_leaves_nothing(binaries: Binaries) -> None:
    """When the API server exits at once, the error carries its reason, and the folder is gone."""
    broken = ControlPlane(binaries, apiserver_flags=["--no-such-flag"])
    with pytest.raises(ControlPlaneError, match="unknown flag: --no-such-flag"):
        await broken.start()
    assert not broken.directory.exists()


async def test_indexed_job_gets_its_pods(full_control_plane: ControlPlane, full_namespace: str) -> None:
    """With controllers, an Indexed Job of three gets three Pods, one for each index."""
    template = {"spec": {"restartPolicy": "Never", "containers": [CONTAINER]}}
    job = {
        "metadata": {"name": "train"},
        "spec": {"completions": 3, "parallelism": 3, "completionMode": "Indexed", "template": template},
    }

    async def indexes() -> set[str]:
        pods = await api.get(f"/api/v1/namespaces/{full_namespace}/pods")
        return {pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] for pod in pods["items"]}

    async with full_control_plane.client() as api:
        await api.post(f"/apis/batch/v1/namespaces/{full_namespace}/jobs", job)
        await eventually(indexes, {"0", "1", "2"})
