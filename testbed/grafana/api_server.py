"""A real kube-apiserver with deploy/apf and a small herd, for the panels about the API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import yaml

from testbed.api_client import ApiClient
from testbed.binaries import find_binaries
from testbed.control_plane import ControlPlane
from testbed.kube_client import install_crd, kube_client

APF: Final = Path(__file__).parents[2] / "deploy" / "apf" / "flowcontrol.yaml"
AGENTS: Final = 8
RBAC: Final = "rbac.authorization.k8s.io"
JOBSETS: Final = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets"
PODS: Final = "/api/v1/namespaces/default/pods"
USER: Final = "agent"
GROUP: Final = "system:serviceaccounts"  # the group that the agents' FlowSchema matches


@asynccontextmanager
async def herd() -> AsyncIterator[dict[str, Any]]:
    """Run it; yield how Prometheus scrapes the server."""
    async with ControlPlane(find_binaries()) as plane, plane.client() as admin:
        async with kube_client(plane.kubeconfig) as client:
            await install_crd(client)
        await _prepare(admin)
        kubeconfig = plane.client_kubeconfig(USER, GROUP)
        async with plane.client(kubeconfig) as api, asyncio.TaskGroup() as group:
            tasks = [group.create_task(_agent(api, index)) for index in range(AGENTS)]
            tasks.append(group.create_task(_controller(admin)))
            try:
                yield _scrape(plane)
            finally:
                for task in tasks:
                    task.cancel()


def _scrape(plane: ControlPlane) -> dict[str, Any]:
    """Return the job, with the administrator's certificate."""
    user = yaml.safe_load(plane.kubeconfig.read_text())["users"][0]["user"]
    return {
        "job_name": "apiserver",
        "scheme": "https",
        "static_configs": [{"targets": [plane.url.removeprefix("https://")]}],
        "tls_config": {
            "ca_file": str(plane.ca),
            "cert_file": user["client-certificate"],
            "key_file": user["client-key"],
        },
    }


async def _prepare(admin: ApiClient) -> None:
    """Create the herd's objects: the priority levels, its rights, a JobSet and Pods."""
    binding = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "herd"},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": RBAC, "kind": "User", "name": USER}],
    }
    await admin.create([*yaml.safe_load_all(APF.read_text()), binding])
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    job = {"spec": {"parallelism": 1, "completions": 1, "template": template}}
    jobset = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "train"}}
    await admin.post(JOBSETS, jobset | {"spec": {"replicatedJobs": [{"name": "w", "template": job}]}})
    for index in range(AGENTS):
        await admin.post(PODS, {"metadata": {"name": f"p{index}"}} | template)


async def _agent(api: ApiClient, index: int) -> None:
    """Repeat an agent's requests: list, patch, watch."""
    epoch = 0
    watch = {"watch": "true", "fieldSelector": "metadata.name=train", "timeoutSeconds": "2"}
    while True:
        epoch += 1
        await api.get(JOBSETS, fieldSelector="metadata.name=train")
        await api.patch(f"{PODS}/p{index}", {"metadata": {"annotations": {"epoch": str(epoch)}}})
        await api.text("GET", JOBSETS, query=watch)


async def _controller(admin: ApiClient) -> None:
    """Write a status now and then, which every watcher is sent."""
    synced = 0
    while True:
        synced += 1
        await admin.patch(f"{JOBSETS}/train/status", {"status": {"syncedEpoch": synced}})
        await asyncio.sleep(1.0)
