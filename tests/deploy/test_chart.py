"""The Helm chart is its generator's output, and the generator refuses an unknown manifest."""

from __future__ import annotations

from pathlib import Path

import pytest

from inplace.deploy.chart import TABLE, TEMPLATES, Template, templates
from inplace.deploy.immutable import MANIFEST, render


def test_the_chart_is_in_step_with_the_manifests() -> None:
    """`python -m deploy.chart` (or `make rewrite`) would change nothing."""
    written = {path.name: path.read_text() for path in TEMPLATES.glob("*.yaml")}
    assert written == templates(), "run: make rewrite"


def test_the_policy_is_in_step_with_its_generator() -> None:
    """`python -m deploy.immutable` (or `make rewrite`) would change nothing."""
    assert MANIFEST.read_text() == render(), "run: make rewrite"


def test_every_manifest_of_the_install_is_in_the_chart() -> None:
    """The chart's table has every file that a kustomization of the base names."""
    deploy = Path(__file__).parents[2] / "deploy"
    listed = {
        f"{folder}/{path.name}"
        for folder in (
            "crd",
            "rbac",
            "admission",
            "apf",
            "controller",
            "overlays/podmonitor",
            "overlays/servicemonitor",
        )
        for path in (deploy / folder).glob("*.yaml")
        if path.name != "kustomization.yaml"
    }
    assert {each.source for each in TABLE} == listed


@pytest.mark.parametrize(
    ("template", "words"),
    [
        (
            Template("controller/deployment.yaml", values={"replicas: 3": "x"}, namespaces=2),
            "expected 'replicas: 3' once",
        ),
        (Template("controller/deployment.yaml", namespaces=1), "expected 1 times the namespace, saw 2"),
    ],
)
def test_a_manifest_that_moved_on_is_noticed(template: Template, words: str) -> None:
    """The generator refuses a manifest without the expected place of a value."""
    with pytest.raises(AssertionError, match=words):
        template.render()
