"""
Ask a kubeconfig's exec plugin for credentials, as kubectl does.

Guarantees: a relative command starts at its kubeconfig's folder; the plugin's answer is kept until it is about to
expire, or the server rejects it; a plugin that nobody can talk to is given up after `ANSWER_S_MAX`.
Source: client.authentication.k8s.io/v1; k8s.io/client-go/plugin/pkg/client/auth/exec.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from inplace.common.kube.http.request import CredentialsError
from inplace.common.kube.kubeconfig import Access, Section

ANSWER_S_MAX: Final = 60.0  # cloud programs take some seconds
ANSWER_BYTES_MAX: Final = 2**20  # a token has 2 kB, a certificate 4 kB
EARLY: Final = timedelta(minutes=1)  # a request, and our clock against the plugin's
VERSIONS: Final = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
_SECRETS: Final = {"token": "token", "clientCertificateData": "certificate_pem", "clientKeyData": "key_pem"}


class ExecPlugin:
    """The program that a user's `exec` names.

    Args:
        access: cluster and user.

    Raises:
        CredentialsError: its settings are at fault.
    """

    def __init__(self, access: Access) -> None:
        values = access.user.values["exec"]
        if not isinstance(values, dict):
            raise access.user.error("exec", "a mapping", repr(values))
        section = Section(access.user.file, f"{access.user.where}.exec", values)
        self._section = section
        self._command = [_program(section), *section.texts("args")]
        self._env = _variables(section)
        self._version = section.text("apiVersion")
        if self._version not in VERSIONS:
            raise section.error("apiVersion", " or ".join(VERSIONS), self._version)
        mode = values.get("interactiveMode") or "IfAvailable"
        self._interactive = mode != "Never" and sys.stdin is not None and sys.stdin.isatty()
        if mode == "Always" and not self._interactive:
            raise section.error("interactiveMode", "a terminal to ask on", "none; use a plugin that asks nobody")
        spec: dict[str, Any] = {"interactive": self._interactive}
        if values.get("provideClusterInfo") is True:
            spec["cluster"] = _cluster_info(access.cluster)
        self._info = json.dumps({"apiVersion": self._version, "kind": "ExecCredential", "spec": spec})
        self._secrets: dict[str, str] = {}
        self._expires: datetime | None = None

    async def secrets(self, *, rejected: bool) -> dict[str, str]:
        """Return token or certificate and key, as fields of `Credentials`.

        Args:
            rejected: the server did not accept the last ones, whatever their expiry says.

        Raises:
            CredentialsError: the plugin failed, or answered something else.
        """
        is_old = self._expires is not None and datetime.now(UTC) + EARLY >= self._expires
        if rejected or is_old or not self._secrets:
            status = self._status(await self._answer())
            self._secrets = {field: status[name] for name, field in _SECRETS.items() if status.get(name)}
            self._expires = self._expiry(status)
        return self._secrets

    async def _answer(self) -> bytes:
        """Run the plugin once; on a terminal it talks to the user."""
        pipe = asyncio.subprocess.PIPE
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                env={**os.environ, **self._env, "KUBERNETES_EXEC_INFO": self._info},
                stdin=None if self._interactive else asyncio.subprocess.DEVNULL,
                stdout=pipe,
                stderr=None if self._interactive else pipe,
            )
        except OSError as error:
            hint = self._section.values.get("installHint")
            raise self._error(f"{error.strerror}{f'; {hint}' if hint else ''}") from error
        try:
            async with asyncio.timeout(None if self._interactive else ANSWER_S_MAX):
                answer, words = await process.communicate()
        except TimeoutError as error:
            raise self._error(f"no answer within {ANSWER_S_MAX:g} s") from error
        finally:
            if process.returncode is None:
                process.kill()
        if process.returncode:
            last = (words or b"").decode(errors="replace").strip()[-300:]
            raise self._error(f"exit code {process.returncode}{f': {last}' if last else ''}")
        return answer

    def _status(self, answer: bytes) -> dict[str, Any]:
        expected = f"an ExecCredential of {self._version} with a status"
        try:
            document = json.loads(answer[:ANSWER_BYTES_MAX])
        except (ValueError, RecursionError) as error:
            raise self._error(f"expected {expected}, saw {answer[:40]!r}") from error  # never all: it may be a token
        if not isinstance(document, dict) or not isinstance(status := document.get("status"), dict):
            raise self._error(f"expected {expected}, saw none")
        if document.get("apiVersion") != self._version:
            raise self._error(f"expected {expected}, saw {document.get('apiVersion')!r}")
        given = [name for name in _SECRETS if isinstance(status.get(name), str) and status[name]]
        if not given or ("clientKeyData" in given) != ("clientCertificateData" in given):
            raise self._error(f"expected a token, or a certificate and its key, saw {' and '.join(given) or 'none'}")
        return status

    def _expiry(self, status: dict[str, Any]) -> datetime | None:
        text = status.get("expirationTimestamp")
        if not text:
            return None
        try:
            expires = datetime.fromisoformat(str(text))
        except ValueError as error:
            raise self._error(f"expected a time in expirationTimestamp, saw {text!r}") from error
        return expires if expires.tzinfo else expires.replace(tzinfo=UTC)

    def _error(self, why: str) -> CredentialsError:
        return CredentialsError(f"{self._section.file}: {self._section.where}: {self._command[0]}: {why}")


def _program(section: Section) -> str:
    """Return the command; one with a slash starts at the kubeconfig's folder, any other is looked up in PATH."""
    command = section.text("command")
    return str((section.file.parent / command).absolute()) if "/" in command else command


def _variables(section: Section) -> dict[str, str]:
    entries = section.values.get("env") or []
    if not isinstance(entries, list) or not all(isinstance(entry, dict) and entry.get("name") for entry in entries):
        raise section.error("env", "a list of names and values", repr(entries))
    return {str(entry["name"]): str(entry.get("value") or "") for entry in entries}


def _cluster_info(cluster: Section) -> dict[str, Any]:
    """Return what a plugin with provideClusterInfo is told; its own settings come from the cluster's extensions."""
    values = cluster.values
    info: dict[str, Any] = {"server": values.get("server")}
    names = ("tls-server-name", "insecure-skip-tls-verify", "proxy-url", "certificate-authority-data")
    info |= {name: values[name] for name in names if values.get(name)}
    if file := cluster.path("certificate-authority"):
        from base64 import b64encode

        info.setdefault("certificate-authority-data", b64encode(Path(file).read_bytes()).decode("ascii"))
    extensions = values.get("extensions") or ()
    config = [
        entry.get("extension") for entry in extensions if entry.get("name") == VERSIONS[0].partition("/")[0] + "/exec"
    ]
    return info | ({"config": config[0]} if config else {})
