"""
Run a controller of another project beside a control plane, under its own ServiceAccount and with its own webhooks.

A program's manifests are installed as they are, but for its Deployment, which the process here stands for, and for what
would need a network of Pods: Services, certificates in Secrets, and aggregated APIs.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, Self

from testbed.api_client import collection
from testbed.clients.apply import Applier
from testbed.clients.manifests import ADMISSION, on_loopback
from testbed.component import Component
from testbed.control_plane import ControlPlane
from testbed.ports import LOOPBACK, free_ports
from testbed.readiness import wait_until_healthy

LEFT_OUT: Final = ("APIService", "Deployment", "Secret", "Service")
"""Kinds of a manifest that mean nothing to a process on loopback."""

Document = dict[str, Any]


class ClientProgram:
    """
    One controller with webhooks, as a process that can be ended and started again.

    Args:
        name: of the process and of its folder below the control plane's.
        namespace, account: the ServiceAccount that its manifests give the permissions to.
    """

    def __init__(self, plane: ControlPlane, name: str, namespace: str, account: str) -> None:
        self._plane = plane
        self._name = name
        self._namespace, self._account = namespace, account
        self.folder = plane.directory / name
        self.folder.mkdir(exist_ok=True)
        self.webhook_port, self.health_port = free_ports(2)
        self._component: Component | None = None

    def manifests(self) -> Sequence[Document]:
        """Return what its users apply."""
        raise NotImplementedError

    async def run(self) -> None:
        """Run it with its default configuration, in place of the process before."""
        raise NotImplementedError

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        """Install the program, with its webhooks at this process's address, and run it; the JobSet CRD must be there.

        Afterwards its webhooks go with it: they would refuse whatever they check. What it made stays.
        """
        kept = [document for document in self.manifests() if document["kind"] not in LEFT_OUT]
        async with self._plane.client() as client:
            await Applier(client).apply(on_loopback(kept, self.webhook_port, self._plane.ca))
        try:
            await self.run()
            yield self
        finally:
            await self.stop()
            async with self._plane.client() as client:
                for document in kept:
                    if document["kind"] in ADMISSION:
                        await client.delete(f"{collection(document)}/{document['metadata']['name']}")

    async def configured(self, command: Sequence[str], configuration: Document) -> None:
        """Replace the process by one with this command and configuration, and return when it serves its webhooks."""
        await self.stop()
        file = self.folder / "configuration.yaml"
        file.write_text(json.dumps(configuration))
        kubeconfig = await self._plane.service_account_kubeconfig(self._namespace, self._account)
        words = (*command, f"--config={file}", f"--kubeconfig={kubeconfig}")
        self._component = Component(self._name, words, self.folder)
        await self.start()

    async def start(self) -> None:
        """Start the process and return when it serves its webhooks."""
        assert self._component is not None, f"{self._name} is not configured"
        self._component.start()
        await wait_until_healthy(self._component, f"http://{LOOPBACK}:{self.health_port}/readyz", self._plane.ca)

    async def stop(self, *, kill: bool = False) -> None:
        """End the process; its objects stay."""
        if self._component is not None:
            await self._component.stop(kill=kill)

    @property
    def log(self) -> str:
        """Return what the process has logged."""
        return self.log_path.read_text(errors="replace")

    @property
    def log_path(self) -> Path:
        """Return the file of the log."""
        return self.folder / f"{self._name}.log"

    def cpu_seconds(self) -> float:
        """Return the CPU time of the process."""
        assert self._component is not None, f"{self._name} is not configured"
        return self._component.cpu_seconds()
