"""Run upstream's JobSet controller beside a control plane of the tests, as its Deployment would.

It has its own ServiceAccount with its own permissions, its default configuration, leader election, and its webhooks by
a loopback URL. The feature gate InPlaceRestart is on; without it upstream does not restart in place.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import yaml

from testbed.api_client import collection
from testbed.component import Component
from testbed.control_plane import ControlPlane
from testbed.go_programs import CONTROLLER, UPSTREAM
from testbed.ports import LOOPBACK, free_ports
from testbed.readiness import wait_until_found, wait_until_healthy
from testbed.upstream import manifests
from testbed.upstream.manifests import ACCOUNT, NAMESPACE, Endpoints

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
        await api.create(manifests.before_start())  # a second controller on this control plane finds them
        kubeconfig = await plane.service_account_kubeconfig(NAMESPACE, ACCOUNT)
        command = (UPSTREAM.build() / CONTROLLER, *manifests.arguments(config_file), f"--kubeconfig={kubeconfig}")
        controller = Component("upstream-controller", tuple(map(str, command)), plane.directory)
        webhooks = manifests.webhooks(endpoints, plane.ca)
        controller.start()
        try:
            await wait_until_healthy(controller, f"http://{LOOPBACK}:{endpoints.health}/readyz", plane.ca)
            for path in (LEASE, JOBSETS):
                await wait_until_found(controller, api, path)
            await api.create(webhooks)
            yield controller
        finally:
            try:
                for manifest in webhooks:
                    await api.delete(f"{collection(manifest)}/{manifest['metadata']['name']}")
            finally:
                await controller.stop()
