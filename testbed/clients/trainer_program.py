"""Run Kubeflow Trainer's controller as its manifests have it, without the JobSet controller that they bring along."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from testbed.clients.manifests import documents, kustomized
from testbed.clients.program import ClientProgram
from testbed.control_plane import ControlPlane
from testbed.go_programs import trainer, trainer_sources
from testbed.ports import LOOPBACK

NAMESPACE: Final = "kubeflow-system"
ACCOUNT: Final = "kubeflow-trainer-controller-manager"
CONFIGURATION: Final = "manifests/base/manager/controller_manager_config.yaml"
CERTIFICATE: Final = "k8s-webhook-server/serving-certs"  # below TMPDIR; no setting names it
INSTALLED: Final = ("crds", "rbac", "webhook")


def trainer_definitions() -> list[dict[str, Any]]:
    """Return Trainer's CRDs."""
    return kustomized(trainer_sources() / "manifests/base/crds")


def trainer_runtimes() -> list[dict[str, Any]]:
    """Return the ClusterTrainingRuntimes that Trainer ships."""
    return kustomized(trainer_sources() / "manifests/overlays/runtimes")


class Trainer(ClientProgram):
    """Trainer beside one control plane."""

    def __init__(self, plane: ControlPlane) -> None:
        super().__init__(plane, "trainer", NAMESPACE, ACCOUNT)
        plane.serving_certificate(self.folder / CERTIFICATE)

    def manifests(self) -> Sequence[dict[str, Any]]:
        """Return its CRDs, roles and webhooks, in its namespace."""
        return _manifests()

    async def run(self) -> None:
        """Run it with its default configuration."""
        await self.configured(("env", f"TMPDIR={self.folder}", str(trainer())), self._configuration())

    def _configuration(self) -> dict[str, Any]:
        (configuration,) = documents((trainer_sources() / CONFIGURATION).read_text())
        return {
            **configuration,
            "health": configuration["health"] | {"healthProbeBindAddress": f"{LOOPBACK}:{self.health_port}"},
            "metrics": {"bindAddress": "0"},
            "webhook": {"host": LOOPBACK, "port": self.webhook_port},
            "certManagement": {"enable": False},
            "leaderElection": {"leaderElect": False},  # one process; a lease would only delay a restart
        }


@cache
def _manifests() -> tuple[dict[str, Any], ...]:
    folders = (trainer_sources() / "manifests/base" / name for name in INSTALLED)
    return (_namespace(), *(_placed(each) for folder in folders for each in kustomized(folder)))


def _namespace() -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}


def _placed(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document in Trainer's namespace, as its overlay places it; cluster-wide kinds ignore that."""
    subjects = [
        subject | {"namespace": NAMESPACE} if subject["kind"] == "ServiceAccount" else subject
        for subject in document.get("subjects", ())
    ]
    is_namespaced = document["kind"] in ("Role", "RoleBinding", "ServiceAccount")
    placed = document | ({"subjects": subjects} if subjects else {})
    return placed | {"metadata": document["metadata"] | ({"namespace": NAMESPACE} if is_namespaced else {})}
