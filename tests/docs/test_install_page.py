"""docs/install.md names kustomizations, flags and values that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from inplace.common.jobset.scopes import CRD_CURE
from inplace.controller.main import _parser
from inplace.controller.preflight import POLICIES, POLICIES_CURE, RIGHTS_CURE

ROOT = Path(__file__).parents[2]
INSTALL = (ROOT / "docs" / "install.md").read_text()


@pytest.mark.parametrize(
    "text", [INSTALL, CRD_CURE, POLICIES_CURE, RIGHTS_CURE], ids=["page", "crd", "policies", "rights"]
)
def test_what_is_applied_is_a_kustomization(text: str) -> None:
    """Each `-k FOLDER` of the page and of the controller's cures can be built."""
    folders = set(re.findall(r"-k (deploy[-\w./]*)", text))
    assert folders
    assert [folder for folder in sorted(folders) if not (ROOT / folder / "kustomization.yaml").is_file()] == []


def test_every_kustomization_is_on_the_page() -> None:
    """Every kustomization is explained on the page, apart from the parts of the base."""
    found = {str(path.parent.relative_to(ROOT)) for path in (ROOT / "deploy").rglob("kustomization.yaml")}
    parts = {f"deploy/{part}" for part in ("rbac", "apf", "admission", "controller")}
    assert {folder for folder in found - parts if f"`{folder}`" not in INSTALL} == {"deploy"}
    assert "`deploy/`" in INSTALL


def test_the_controllers_cures_are_on_the_page() -> None:
    """The commands of the controller's cures are on the page."""
    assert f"`{CRD_CURE}`" in INSTALL
    assert f"`{POLICIES_CURE}`" in INSTALL
    assert f"`{RIGHTS_CURE.partition(',')[0]}`" in INSTALL


def test_flags_and_values_exist() -> None:
    """--beside is a flag, and the page names exactly the chart's values."""
    assert "--beside" in _parser().format_help()
    values = yaml.safe_load((ROOT / "deploy/helm/inplace/values.yaml").read_text())
    listed = re.search(r"has the values: ([^.]*(?:\.install[^.]*)?)\.", INSTALL)
    assert listed is not None
    named = {name.partition(".")[0] for name in re.findall(r"`([\w.]+)`", listed[1])}
    assert named == set(values) - {"imagePullSecrets", "namespace"}


def test_the_policies_that_are_looked_for_are_shipped() -> None:
    """The controller looks for bindings by their names in deploy/admission."""
    shipped = {
        document["metadata"]["name"]
        for path in (ROOT / "deploy/admission").glob("*.yaml")
        for document in yaml.safe_load_all(path.read_text())
        if document.get("kind") == "ValidatingAdmissionPolicyBinding"
    }
    assert shipped == set(POLICIES)
