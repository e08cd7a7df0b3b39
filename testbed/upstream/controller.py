"""Run upstream's JobSet controller beside a control plane of the tests, as its Deployment would.

It has its own ServiceAccount with its own permissions, its default configuration, leader election, and its webhooks by
a loopback URL. The feature gate InPlaceRestart is on; without it upstream does not restart in place.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import yaml

from testbed.api_client import ApiClient, UnexpectedStatus
from testbed.component import Component
from testbed.control_plane import ControlPlane
from testbed.ports import LOOPBACK, free_ports
from testbed.readiness import wait_until_found, wait_until_healthy
from testbed.upstream import manifests
from testbed.upstream.build import CONTROLLER, UPSTREAM
from testbed.upstream.manifests import ACCOUNT, NAMESPACE, Endpoints, Manifest

GATES = ("InPlaceRestart",)
JOBSETS = "/apis/jobset.x-k8s.io/v1alpha2/jobsets"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/6d4f6a47.jobset.x-k8s.io"


@asynccontextmanager
async def upstream_controller(plane: ControlPlane) -> AsyncIterator[Component]:
    """Install upstream's objects and run its controller; yield it when it leads and its webhooks serve.

    The webhooks go with the controller; the CRD and the permissions stay.

    Raises:
        ControlPlaneError: the controller exited or did not become ready; the message has the tail of its log.
    """
    certificates = plane.directory / "upstream"
    certificates.mkdir()
    plane.serving_certificate(certificates)
    endpoints = Endpoints(certificates, *free_ports(3))
    config_file = endpoints.certificates / manifests.CONFIG_FILE
    config_file.write_text(yaml.safe_dump(manifests.config(endpoints, GATES)))
    async with plane.client() as api:
        for manifest in manifests.before_start():
            await _create(api, manifest)
        kubeconfig = await plane.service_account_kubeconfig(NAMESPACE, ACCOUNT)
        command = (UPSTREAM.build() / CONTROLLER, *manifests.arguments(config_file), f"--kubeconfig={kubeconfig}")
        controller = Component("upstream-controller", tuple(map(str, command)), plane.directory)
        webhooks = manifests.webhooks(endpoints, plane.ca)
        controller.start()
        try:
            await wait_until_healthy(controller, f"http://{LOOPBACK}:{endpoints.health}/readyz", plane.ca)
            for path in (LEASE, JOBSETS):
                await wait_until_found(controller, api, path)
            for manifest in webhooks:
                await _create(api, manifest)
            yield controller
        finally:
            try:
                for manifest in webhooks:
                    await _delete(api, manifest)
            finally:
                await controller.stop()


async def _create(api: ApiClient, manifest: Manifest) -> None:
    """Create an object, unless one of its name is there."""
    try:
        await api.post(_collection(manifest), manifest)
    except UnexpectedStatus as error:
        if error.status != 409:  # AlreadyExists: a second controller on this control plane
            raise


async def _delete(api: ApiClient, manifest: Manifest) -> None:
    await api.delete(f"{_collection(manifest)}/{manifest['metadata']['name']}")


def _collection(manifest: Manifest) -> str:
    """Return the path of an object's collection; the plural of each kind here is the kind and an s."""
    group, plural = manifest["apiVersion"], f"{manifest['kind'].lower()}s"
    namespace = manifest["metadata"].get("namespace")
    root = "/api/v1" if group == "v1" else f"/apis/{group}"
    return f"{root}/namespaces/{namespace}/{plural}" if namespace else f"{root}/{plural}"
