"""The controller's program as a child process, with the permissions of deploy/rbac and nothing else."""

from __future__ import annotations

import sys
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml

from inplace.common.kube.client import KubeClient
from testbed.component import Component
from testbed.control_plane import ControlPlane
from testbed.kube_client import create
from testbed.ports import LOOPBACK, free_ports
from testbed.waiting import eventually

RBAC = Path(__file__).parents[3] / "deploy" / "rbac" / "controller.yaml"
NAMESPACE = "inplace-system"
ACCOUNT = "inplace-controller"
USER = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"


def roles() -> list[dict[str, Any]]:
    """Return the documents of deploy/rbac."""
    return list(yaml.safe_load_all(RBAC.read_text()))


class ServedController:
    """A running controller; its log is kept."""

    def __init__(self, component: Component, probes: str, metrics: str) -> None:
        self._component = component
        self._probes = probes
        self._metrics = metrics

    @property
    def log(self) -> str:
        """Return the controller's log up to now."""
        return self._component.log_path.read_text()

    def metrics(self) -> str:
        """Return the controller's metrics page."""
        return self._get(self._metrics, "/metrics")

    def is_ready(self) -> bool:
        """Return whether the controller leads, with full caches."""
        self._component.check_alive()
        try:
            return bool(self._get(self._probes, "/readyz"))
        except OSError:
            return False

    @asynccontextmanager
    async def replaced(self) -> AsyncIterator[None]:
        """End the process for the body of the block; start a new one after it, which sees all changes at once."""
        await self._component.stop()
        try:
            yield
        finally:
            self._component.start()
            await self.becomes_ready()

    async def becomes_ready(self) -> None:
        """Wait until the controller leads, with full caches."""
        await eventually(self.is_ready, True)

    @staticmethod
    def _get(address: str, path: str) -> str:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=5.0) as answer:
            return str(answer.read().decode())


@asynccontextmanager
async def serving(plane: ControlPlane, admin: KubeClient, *more: str) -> AsyncIterator[ServedController]:
    """Run the controller for all namespaces of a control plane, with these flags more."""
    await create(admin, roles())
    kubeconfig = await plane.service_account_kubeconfig(NAMESPACE, ACCOUNT)
    probes, metrics = (f"{LOOPBACK}:{port}" for port in free_ports(2))
    flags = ("--kubeconfig", str(kubeconfig), "--leader-elect-namespace", NAMESPACE)
    ports = ("--probe-bind-address", probes, "--metrics-bind-address", metrics)
    command = (sys.executable, "-m", "inplace.controller.main", *flags, *ports, *more)
    component = Component("inplace-controller", command, plane.directory)
    component.start()
    try:
        served = ServedController(component, probes, metrics)
        await served.becomes_ready()
        yield served
    finally:
        await component.stop()
