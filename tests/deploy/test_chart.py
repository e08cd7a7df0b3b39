"""The Helm chart is its generator's output, and the generator refuses an unknown manifest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from inplace.agent.version import VERSION
from inplace.deploy.chart import CHART, DASHBOARDS, TABLE, TEMPLATES, Template, dashboards, readme, templates
from inplace.deploy.immutable import MANIFEST, render


def test_the_chart_is_in_step_with_the_manifests() -> None:
    """`python -m deploy.chart` (or `make rewrite`) would change nothing."""
    written = {path.name: path.read_text() for path in TEMPLATES.glob("*.yaml")}
    assert written == templates(), "run: make rewrite"
    assert {path.name: path.read_text() for path in DASHBOARDS.iterdir()} == dashboards(), "run: make rewrite"
    assert (CHART / "README.md").read_text() == readme(), "run: make rewrite"


def test_the_schema_knows_the_values_and_no_others() -> None:
    """Every value of the chart has a type in the schema, which refuses all others at every level that is ours."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert set(schema["properties"]) - {"global"} == set(values)
    assert schema["additionalProperties"] is False
    for name in ("image", "namespace", "crd", "dashboards"):
        part = schema["properties"][name]
        assert (set(part["properties"]), part["additionalProperties"]) == (set(values[name]), False)


def test_the_charts_version_is_the_programs() -> None:
    """The image's default tag is the version of the program."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == chart["version"] == VERSION


def test_dashboards_fit_into_a_release() -> None:
    """Helm stores a release in a Secret of at most 1 MiB, the chart's files among it."""
    assert sum(len(text) for text in (dashboards() | templates()).values()) < 700_000


def test_the_policy_is_in_step_with_its_generator() -> None:
    """`python -m deploy.immutable` (or `make rewrite`) would change nothing."""
    assert MANIFEST.read_text() == render(), "run: make rewrite"


def test_every_manifest_of_the_install_is_in_the_chart() -> None:
    """The chart's table has every file that a kustomization of these folders names."""
    deploy = Path(__file__).parents[2] / "deploy"
    listed = {
        f"{folder}/{path.name}"
        for folder in (
            "crd",
            "rbac",
            "admission",
            "apf",
            "agent",
            "controller",
            "workers",
            "overlays/taints",
            "overlays/podmonitor",
            "overlays/servicemonitor",
            "overlays/prometheusrule",
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
