"""
Run Kueue and Kubeflow Trainer beside a control plane, each under its own ServiceAccount and with its own webhooks.

A program's manifests are installed as they are, but for its Deployment, which the process here stands for, and for what
would need a network of Pods: Services, certificates in Secrets, and aggregated APIs.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Final, Self

from testbed.api_client import collection
from testbed.clients.apply import Applier
from testbed.clients.manifests import ADMISSION, documents, kustomized, on_loopback
from testbed.component import Component
from testbed.control_plane import ControlPlane
from testbed.go_programs import METRICS_FOLDER, kueue, kueue_sources, trainer, trainer_sources
from testbed.ports import LOOPBACK, free_ports
from testbed.readiness import wait_until_healthy

LEFT_OUT: Final = ("APIService", "Deployment", "Secret", "Service")
"""Kinds of a manifest that mean nothing to a process on loopback."""

KUEUE_CONFIGURATION: Final = "config/components/manager/controller_manager_config.yaml"
KUEUE_GATES: Final = {"VisibilityOnDemand": False}
"""Its server of pending workloads is an aggregated API: the API server would need a Service with an endpoint."""

TRAINER_CONFIGURATION: Final = "manifests/base/manager/controller_manager_config.yaml"
TRAINER_CERTIFICATE: Final = "k8s-webhook-server/serving-certs"  # below TMPDIR; no setting names it
TRAINER_INSTALLED: Final = ("crds", "rbac", "webhook")

Document = dict[str, Any]


class ClientProgram:
    """
    One controller with webhooks, as a process that can be ended and started again.

    Attributes:
        name: of the process and of its folder below the control plane's.
        namespace, account: the ServiceAccount that its manifests give the permissions to.
    """

    name: ClassVar[str]
    namespace: ClassVar[str]
    account: ClassVar[str]

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self.folder = plane.directory / self.name
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
        kubeconfig = await self._plane.service_account_kubeconfig(self.namespace, self.account)
        words = (*command, f"--config={file}", f"--kubeconfig={kubeconfig}")
        self._component = Component(self.name, words, self.folder)
        await self.start()

    async def start(self) -> None:
        """Start the process and return when it serves its webhooks."""
        assert self._component is not None, f"{self.name} is not configured"
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
        return self.folder / f"{self.name}.log"

    def cpu_seconds(self) -> float:
        """Return the CPU time of the process."""
        assert self._component is not None, f"{self.name} is not configured"
        return self._component.cpu_seconds()


class Kueue(ClientProgram):
    """Kueue as its default manifests have it: all integrations, its webhooks, its permissions."""

    name = "kueue"
    namespace = "kueue-system"
    account = "kueue-controller-manager"

    def __init__(self, plane: ControlPlane) -> None:
        super().__init__(plane)
        self._sources = kueue_sources()
        plane.serving_certificate(self.folder / "certificate")
        plane.serving_certificate(self.folder / METRICS_FOLDER)

    async def run(self, **settings: Any) -> None:
        """Run it with its default configuration and these top-level settings, in place of the process before."""
        await self.configured((str(kueue()), "--zap-log-level=2"), self._configuration(settings))

    def manifests(self) -> list[Document]:
        """Return its default manifests."""
        return kustomized(self._sources / "config/default")

    def _configuration(self, settings: Mapping[str, Any]) -> Document:
        (configuration,) = documents((self._sources / KUEUE_CONFIGURATION).read_text())
        return {
            **configuration,
            "namespace": self.namespace,
            "health": {"healthProbeBindAddress": f"{LOOPBACK}:{self.health_port}"},
            "metrics": {"bindAddress": "0"},
            "webhook": {"host": LOOPBACK, "port": self.webhook_port, "certDir": str(self.folder / "certificate")},
            "internalCertManagement": {"enable": False},
            "leaderElection": {"leaderElect": False},  # one process; a lease would only delay a restart
            **settings,
            "featureGates": KUEUE_GATES | settings.get("featureGates", {}),
        }


def trainer_definitions() -> list[Document]:
    """Return Trainer's CRDs."""
    return kustomized(trainer_sources() / "manifests/base/crds")


def trainer_runtimes() -> list[Document]:
    """Return the ClusterTrainingRuntimes that Trainer ships."""
    return kustomized(trainer_sources() / "manifests/overlays/runtimes")


class Trainer(ClientProgram):
    """Trainer as its manifests have it, without the JobSet controller that they bring along."""

    name = "trainer"
    namespace = "kubeflow-system"
    account = "kubeflow-trainer-controller-manager"

    def __init__(self, plane: ControlPlane) -> None:
        super().__init__(plane)
        plane.serving_certificate(self.folder / TRAINER_CERTIFICATE)

    def manifests(self) -> Sequence[Document]:
        """Return its CRDs, roles and webhooks, in its namespace."""
        return _manifests()

    async def run(self) -> None:
        """Run it with its default configuration."""
        await self.configured(("env", f"TMPDIR={self.folder}", str(trainer())), self._configuration())

    def _configuration(self) -> Document:
        (configuration,) = documents((trainer_sources() / TRAINER_CONFIGURATION).read_text())
        return {
            **configuration,
            "health": configuration["health"] | {"healthProbeBindAddress": f"{LOOPBACK}:{self.health_port}"},
            "metrics": {"bindAddress": "0"},
            "webhook": {"host": LOOPBACK, "port": self.webhook_port},
            "certManagement": {"enable": False},
            "leaderElection": {"leaderElect": False},  # one process; a lease would only delay a restart
        }


@cache
def _manifests() -> tuple[Document, ...]:
    folders = (trainer_sources() / "manifests/base" / name for name in TRAINER_INSTALLED)
    return (_namespace(), *(_placed(each) for folder in folders for each in kustomized(folder)))


def _namespace() -> Document:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": Trainer.namespace}}


def _placed(document: Document) -> Document:
    """Return a document in Trainer's namespace, as its overlay places it; cluster-wide kinds ignore that."""
    subjects = [
        subject | {"namespace": Trainer.namespace} if subject["kind"] == "ServiceAccount" else subject
        for subject in document.get("subjects", ())
    ]
    is_namespaced = document["kind"] in ("Role", "RoleBinding", "ServiceAccount")
    placed = document | ({"subjects": subjects} if subjects else {})
    return placed | {"metadata": document["metadata"] | ({"namespace": Trainer.namespace} if is_namespaced else {})}
