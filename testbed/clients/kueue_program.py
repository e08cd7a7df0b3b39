"""Run Kueue as its default manifests have it: all integrations, its webhooks, its permissions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from testbed.clients.manifests import documents, kustomized
from testbed.clients.program import ClientProgram
from testbed.control_plane import ControlPlane
from testbed.go_programs import METRICS_FOLDER, kueue, kueue_sources
from testbed.ports import LOOPBACK

NAMESPACE: Final = "kueue-system"
ACCOUNT: Final = "kueue-controller-manager"
CONFIGURATION: Final = "config/components/manager/controller_manager_config.yaml"

# Its server of pending workloads is an aggregated API, for which the API server would need a Service with an endpoint.
GATES: Final = {"VisibilityOnDemand": False}


class Kueue(ClientProgram):
    """Kueue beside one control plane."""

    def __init__(self, plane: ControlPlane) -> None:
        super().__init__(plane, "kueue", NAMESPACE, ACCOUNT)
        self._sources = kueue_sources()
        plane.serving_certificate(self.folder / "certificate")
        plane.serving_certificate(self.folder / METRICS_FOLDER)

    async def run(self, **settings: Any) -> None:
        """Run it with its default configuration and these top-level settings, in place of the process before."""
        await self.configured((str(kueue()), "--zap-log-level=2"), self._configuration(settings))

    def manifests(self) -> list[dict[str, Any]]:
        """Return its default manifests."""
        return kustomized(self._sources / "config/default")

    def _configuration(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        (configuration,) = documents((self._sources / CONFIGURATION).read_text())
        return {
            **configuration,
            "namespace": NAMESPACE,
            "health": {"healthProbeBindAddress": f"{LOOPBACK}:{self.health_port}"},
            "metrics": {"bindAddress": "0"},
            "webhook": {"host": LOOPBACK, "port": self.webhook_port, "certDir": str(self.folder / "certificate")},
            "internalCertManagement": {"enable": False},
            "leaderElection": {"leaderElect": False},  # one process; a lease would only delay a restart
            **settings,
            "featureGates": GATES | settings.get("featureGates", {}),
        }
