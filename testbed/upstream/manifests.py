"""Read upstream's installation (its `config/default`) as the objects that a user would apply.

kubectl renders the kustomization from the module's folder. What needs a node (Deployment, Services) is not created; the
Deployment and the ConfigMap say how the controller is started.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from testbed.clients.manifests import ADMISSION, kustomized, on_loopback
from testbed.go_programs import upstream_sources

Manifest = dict[str, Any]

NAMESPACE = "jobset-system"
ACCOUNT = "jobset-controller-manager"
CONFIG_FILE = "controller_manager_config.yaml"

CREATED = ("Namespace", "CustomResourceDefinition", "ServiceAccount", "Role", "ClusterRole", "RoleBinding")
"""Kinds that are created before the controller starts, and ClusterRoleBinding; the webhooks follow when it listens."""


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Where the controller listens on loopback, and the folder of its certificate.

    Args:
        certificates: has tls.crt and tls.key for 127.0.0.1.
        webhook: port.
        metrics: port.
        health: port.
    """

    certificates: Path
    webhook: int
    metrics: int
    health: int


@cache
def rendered() -> tuple[Manifest, ...]:
    """Return all objects of upstream's installation; see `kustomized`."""
    return tuple(kustomized(upstream_sources() / "config" / "default"))


def before_start() -> Sequence[Manifest]:
    """Return namespace, CRD, account and permissions, in the order in which they can be created."""
    return [each for kind in (*CREATED, "ClusterRoleBinding") for each in _of(kind)]


def crd() -> Manifest:
    """Return upstream's CustomResourceDefinition."""
    (found,) = _of("CustomResourceDefinition")
    return found


def webhooks(endpoints: Endpoints, ca: Path) -> Sequence[Manifest]:
    """Return the webhook configurations with each Service replaced by a loopback URL."""
    return on_loopback((each for kind in ADMISSION for each in _of(kind)), endpoints.webhook, ca)


def config(endpoints: Endpoints, gates: Sequence[str]) -> Manifest:
    """Return the default configuration, with loopback addresses, our certificate, and feature gates on."""
    (stored,) = _of("ConfigMap")
    default: Manifest = yaml.safe_load(stored["data"][CONFIG_FILE])
    folder = str(endpoints.certificates)
    return default | {
        "featureGates": dict.fromkeys(gates, True),
        "internalCertManagement": {"enable": False},
        # Outside of a Pod nothing tells the controller its namespace.
        "leaderElection": default["leaderElection"] | {"resourceNamespace": NAMESPACE},
        "webhook": {"host": "127.0.0.1", "port": endpoints.webhook, "certDir": folder},
        "metrics": {"bindAddress": f"127.0.0.1:{endpoints.metrics}", "certDir": folder},
        "health": {"healthProbeBindAddress": f"127.0.0.1:{endpoints.health}"},
    }


def arguments(config_file: Path) -> Sequence[str]:
    """Return the arguments that the Deployment gives to the controller, with this machine's path in `--config`."""
    (deployment,) = _of("Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return [f"--config={config_file}" if word.startswith("--config=") else word for word in container["args"]]


def _of(kind: str) -> list[Manifest]:
    return [each for each in rendered() if each["kind"] == kind]
