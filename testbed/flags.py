"""Spell the command line of each component; pure, so the choices can be read in one place.

What differs from a production cluster, and why: etcd does not fsync (nobody needs a test's data after a
crash); there is one replica of everything and so no leader election; every address is loopback; watches end
with the server's SIGTERM; the controllers may send many requests a second (each number below has its
reason).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.credentials import SERVICE_ADDRESS, ClientFiles, Credentials
from testbed.ports import LOOPBACK

SERVICE_CIDR = "10.0.0.0/24"

ISSUER = "https://kubernetes.default.svc"
"""The issuer and audience of ServiceAccount tokens; it is never fetched here."""

WATCH_DRAIN_S = 2
"""On SIGTERM the API server ends its watches cleanly (measured: within 10 ms). Without this it waits for its
watchers to go away by themselves, for up to 60 s."""

CONTROLLER_REQUESTS_PER_S = 500
"""Per controller. The default of 20 makes the start 4 s longer, and a Job's 1,000 Pods take 50 s at least."""


@dataclass(frozen=True, slots=True)
class Ports:
    """Say on which loopback port each server listens."""

    etcd_client: int
    etcd_peer: int
    apiserver: int
    controller_manager: int
    scheduler: int


def etcd(ports: Ports, directory: Path) -> Sequence[str]:
    """Return the flags of a one-member etcd without TLS."""
    client = f"http://{LOOPBACK}:{ports.etcd_client}"
    peer = f"http://{LOOPBACK}:{ports.etcd_peer}"
    return (
        "--name=kubelab",
        f"--data-dir={directory / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=kubelab={peer}",
        "--unsafe-no-fsync",
        "--log-level=warn",
    )


def apiserver(ports: Ports, credentials: Credentials, *, service_account_admission: bool) -> Sequence[str]:
    """Return the flags of kube-apiserver.

    `service_account_admission` is what real clusters have. It needs a controller-manager that creates the
    ServiceAccount `default` of a new namespace, without which that namespace refuses every Pod.
    """
    admission = () if service_account_admission else ("--disable-admission-plugins=ServiceAccount",)
    return (
        f"--etcd-servers=http://{LOOPBACK}:{ports.etcd_client}",
        f"--bind-address={LOOPBACK}",
        f"--secure-port={ports.apiserver}",
        f"--tls-cert-file={credentials.server.certificate}",
        f"--tls-private-key-file={credentials.server.key}",
        f"--client-ca-file={credentials.ca}",
        "--authorization-mode=Node,RBAC",
        f"--service-account-issuer={ISSUER}",
        f"--service-account-key-file={credentials.service_account_public_key}",
        f"--service-account-signing-key-file={credentials.service_account_private_key}",
        f"--service-cluster-ip-range={SERVICE_CIDR}",
        f"--shutdown-watch-termination-grace-period={WATCH_DRAIN_S}s",
        # Nobody routes to the Service `kubernetes`, and a loopback endpoint would be refused.
        "--endpoint-reconciler-type=none",
        *admission,
    )


def apiserver_for_pods(kubelets_client: ClientFiles) -> Sequence[str]:
    """Return kube-apiserver's additional flags for clients in Pods of real nodes, and for their kubelets (logs)."""
    return (
        "--bind-address=0.0.0.0",
        f"--advertise-address={SERVICE_ADDRESS}",
        f"--kubelet-client-certificate={kubelets_client.certificate}",
        f"--kubelet-client-key={kubelets_client.key}",
        "--kubelet-preferred-address-types=InternalIP",
    )


def controller_manager(ports: Ports, credentials: Credentials, kubeconfig: Path) -> Sequence[str]:
    """Return the flags of kube-controller-manager with the controllers that are on by default."""
    return (
        *_client_of_apiserver(ports.controller_manager, credentials, kubeconfig),
        "--use-service-account-credentials",
        f"--service-account-private-key-file={credentials.service_account_private_key}",
        f"--root-ca-file={credentials.ca}",
    )


def scheduler(ports: Ports, credentials: Credentials, kubeconfig: Path) -> Sequence[str]:
    """Return the flags of kube-scheduler with its default profile."""
    return _client_of_apiserver(ports.scheduler, credentials, kubeconfig)


def _client_of_apiserver(port: int, credentials: Credentials, kubeconfig: Path) -> tuple[str, ...]:
    return (
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        f"--kube-api-qps={CONTROLLER_REQUESTS_PER_S}",
        f"--kube-api-burst={CONTROLLER_REQUESTS_PER_S}",
        "--leader-elect=false",
        f"--bind-address={LOOPBACK}",
        f"--secure-port={port}",
        f"--tls-cert-file={credentials.server.certificate}",
        f"--tls-private-key-file={credentials.server.key}",
    )
