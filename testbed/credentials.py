"""Make a control plane's credentials: one CA, certificates and the service-account key.

Guarantees: everything is ECDSA P-256, as a cluster tuned for many short TLS connections has it, so that
handshake costs measured here mean something. Every kubeconfig names files of this folder only and is valid
JSON, hence YAML.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

SERVICE_ADDRESS = "10.0.0.1"
"""The first address of SERVICE_CIDR, which the Service `kubernetes.default` always gets."""

SERVICE_PORT = 443
"""The port of that Service."""

SERVER_NAMES = ("127.0.0.1", SERVICE_ADDRESS, "localhost", "kubernetes.default.svc")


@dataclass(frozen=True, slots=True)
class ClientFiles:
    """The certificate and key of one client."""

    certificate: Path
    key: Path


class Credentials:
    """Write the credentials of one control plane into `directory` and keep the CA to issue more."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._authority = trustme.CA(key_type=trustme.KeyType.ECDSA)
        self.ca = directory / "ca.crt"
        self._authority.cert_pem.write_to_path(str(self.ca))
        self.server = self._issue("server", SERVER_NAMES, user="kube-apiserver", group="inplace")
        self.service_account_private_key = directory / "service-account.key"
        self.service_account_public_key = directory / "service-account.pub"
        self._write_service_account_keys()

    def client(self, user: str, group: str) -> ClientFiles:
        """Issue a client certificate; Kubernetes reads the user from CN and the group from O."""
        return self._issue(user.replace(":", "-"), (f"{user.replace(':', '-')}.client.test",), user, group)

    def serving(self, directory: Path) -> ClientFiles:
        """Issue a certificate for a server on loopback: `tls.crt` and `tls.key` of a folder, as a Secret has them."""
        directory.mkdir(parents=True, exist_ok=True)
        return self._issue(str(directory / "tls"), SERVER_NAMES, user="webhook", group="inplace")

    def client_kubeconfig(self, server_url: str, user: str, group: str) -> Path:
        """Write a kubeconfig for a new client certificate of `user` and return its path."""
        files = self.client(user, group)
        return self._write_kubeconfig(
            server_url, user, {"client-certificate": str(files.certificate), "client-key": str(files.key)}
        )

    def token_kubeconfig(self, server_url: str, user: str, token: str, *, pod: str = "") -> Path:
        """Write a kubeconfig with a bearer token, as a ServiceAccount or one of its Pods has it; return its path."""
        return self._write_kubeconfig(server_url, user, {"token": token}, f"{user}.{pod}" if pod else user)

    def _issue(self, stem: str, names: tuple[str, ...], user: str, group: str) -> ClientFiles:
        leaf = self._authority.issue_cert(
            *names, common_name=user, organization_name=group, key_type=trustme.KeyType.ECDSA
        )
        files = ClientFiles(self._directory / f"{stem}.crt", self._directory / f"{stem}.key")
        leaf.cert_chain_pems[0].write_to_path(str(files.certificate))
        leaf.private_key_pem.write_to_path(str(files.key))
        return files

    def _write_service_account_keys(self) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        # SEC1 ("EC PRIVATE KEY"), the one encoding of ECDSA keys that every component's flag reads.
        self.service_account_private_key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
            )
        )
        self.service_account_public_key.write_bytes(
            key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        )

    def _write_kubeconfig(self, server_url: str, user: str, credential: dict[str, str], stem: str = "") -> Path:
        path = self._directory / f"{(stem or user).replace(':', '-')}.kubeconfig"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "kubelab", "cluster": {"server": server_url, "certificate-authority": str(self.ca)}}],
            "users": [{"name": user, "user": credential}],
            "contexts": [{"name": "kubelab", "context": {"cluster": "kubelab", "user": user}}],
            "current-context": "kubelab",
        }
        path.write_text(json.dumps(config, indent=2))
        return path
