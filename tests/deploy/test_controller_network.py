"""deploy/controller: which clients may reach which port of the controller."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from inplace.controller.main import METRICS_PORT, PROBE_PORT
from tests.deploy.network_policies import Place, may_reach

DEPLOY = Path(__file__).parents[2] / "deploy"
PORTS = {PROBE_PORT, METRICS_PORT}
LABELLED = [{"namespaceSelector": {"matchLabels": {"inplace.dev/metrics": "true"}}}]


def documents(path: str) -> dict[str, Any]:
    """Return the objects of a manifest by kind."""
    return {each["kind"]: each for each in yaml.safe_load_all((DEPLOY / path).read_text())}


def container() -> dict[str, Any]:
    """Return the controller's container."""
    found: dict[str, Any] = documents("controller/deployment.yaml")["Deployment"]["spec"]["template"]["spec"][
        "containers"
    ][0]
    return found


def test_only_labelled_namespaces_may_scrape() -> None:
    """Only labelled namespaces reach the metrics; the probes' port is open, because no rule can name kubelet."""
    policy = documents("controller/network.yaml")["NetworkPolicy"]
    pod = documents("controller/deployment.yaml")["Deployment"]["spec"]["template"]["metadata"]["labels"]
    target = Place(policy["metadata"]["namespace"], pod)
    monitoring = Place("monitoring", namespace_labels={"inplace.dev/metrics": "true"})
    for source, ports in ((Place("team-a"), {PROBE_PORT}), (target, {PROBE_PORT}), (monitoring, PORTS)):
        assert {port for port in range(1, 65536) if may_reach([policy], source, target, port)} == ports
        assert not any(may_reach([policy], source, target, port, "UDP") for port in PORTS)


def test_workers_and_controller_have_one_label() -> None:
    """A namespace that may scrape the workers' agents may scrape the controller."""
    *_, scrapers = documents("workers/network.yaml")["NetworkPolicy"]["spec"]["ingress"]
    assert scrapers["from"] == LABELLED


def test_the_ports_are_the_programs_defaults() -> None:
    """The container's ports are the program's default ports."""
    ports = {port["name"]: port["containerPort"] for port in container()["ports"]}
    assert ports == {"probes": PROBE_PORT, "metrics": METRICS_PORT}


@pytest.mark.parametrize("probe", ["startupProbe", "livenessProbe", "readinessProbe"])
def test_kubelet_asks_the_probes_port(probe: str) -> None:
    """The probes use the probes' port, which no policy closes."""
    assert container()[probe]["httpGet"]["port"] == "probes"


def test_monitors_and_service_lead_to_the_metrics() -> None:
    """The PodMonitor names the container's port, the ServiceMonitor the Service's, which leads to it."""
    (endpoint,) = documents("overlays/podmonitor/podmonitor.yaml")["PodMonitor"]["spec"]["podMetricsEndpoints"]
    assert endpoint["port"] == "metrics"
    (port,) = documents("controller/network.yaml")["Service"]["spec"]["ports"]
    assert port == {"name": "metrics", "port": METRICS_PORT, "targetPort": "metrics"}
    (endpoint,) = documents("overlays/servicemonitor/servicemonitor.yaml")["ServiceMonitor"]["spec"]["endpoints"]
    assert endpoint["port"] == "metrics"
