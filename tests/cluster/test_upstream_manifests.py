"""What is taken from upstream's installation, and what is changed in it for a controller on loopback."""

from __future__ import annotations

import base64
import os
import shutil
from pathlib import Path

import pytest

from testbed.clients.manifests import ADMISSION
from testbed.go_programs import upstream_sources, upstream_version
from testbed.upstream import manifests
from testbed.upstream.manifests import Endpoints

ENDPOINTS = Endpoints(Path("/certificates"), webhook=1, metrics=2, health=3)


@pytest.fixture(autouse=True)
def _programs() -> None:
    """Skip where the tools that read upstream's manifests are missing; fail in CI."""
    for program in ("go", "kubectl"):
        if shutil.which(program) is None:
            (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(f"{program} is not on PATH")


def test_the_account_has_upstreams_own_permissions() -> None:
    """The role that is bound to the controller's account is in upstream's manifests, and comes before the binding."""
    documents = manifests.before_start()
    kinds = [each["kind"] for each in documents]
    assert kinds.index("ClusterRole") < kinds.index("ClusterRoleBinding")
    assert not {"Deployment", "Service", "Secret", *ADMISSION} & set(kinds)
    bound = [
        each["roleRef"]["name"]
        for each in documents
        for subject in each.get("subjects", ())
        if each["kind"] == "ClusterRoleBinding" and subject["name"] == manifests.ACCOUNT
    ]
    assert "jobset-manager-role" in bound


def test_every_webhook_is_called_on_loopback_with_our_authority(tmp_path: Path) -> None:
    """Each webhook keeps its path and rules; the Service is replaced by a URL."""
    authority = tmp_path / "ca.crt"
    authority.write_bytes(b"PEM")
    configurations = manifests.webhooks(ENDPOINTS, authority)
    hooks = [hook for each in configurations for hook in each["webhooks"]]
    assert len(configurations) == 2
    assert {hook["name"] for hook in hooks} == {"mjobset.kb.io", "mpod.kb.io", "vjobset.kb.io", "vpod.kb.io"}
    for hook in hooks:
        assert hook["rules"]
        assert hook["clientConfig"]["url"].startswith("https://127.0.0.1:1/")
        assert hook["clientConfig"]["caBundle"] == base64.b64encode(b"PEM").decode()
        assert "service" not in hook["clientConfig"]


def test_the_configuration_is_the_default_one_with_the_gate_on() -> None:
    """Leader election stays on as in upstream's default; all addresses are on loopback."""
    config = manifests.config(ENDPOINTS, ("InPlaceRestart",))
    assert config["kind"] == "Configuration"
    assert config["featureGates"] == {"InPlaceRestart": True}
    assert config["leaderElection"] == {"leaderElect": True, "resourceNamespace": manifests.NAMESPACE}
    assert config["metrics"]["bindAddress"] == "127.0.0.1:2"
    arguments = manifests.arguments(Path("/config.yaml"))
    assert "--config=/config.yaml" in arguments


def test_the_version_is_that_of_the_module() -> None:
    """The version that reports name is the one whose sources are read."""
    assert str(upstream_sources()).endswith(f"@{upstream_version()}")
