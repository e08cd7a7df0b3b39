"""deploy/workers: the NetworkPolicy for a namespace of worker Pods."""

from __future__ import annotations

from pathlib import Path

import yaml

from inplace.common.wire.barrier import OUR_PORT

POLICY = yaml.safe_load((Path(__file__).parents[2] / "deploy/workers/network.yaml").read_text())


def test_no_other_worker_reaches_the_agents_port() -> None:
    """Pods of JobSets reach each other's TCP ports, apart from the agent's port; only scrapers reach that."""
    peers, scrapers = POLICY["spec"]["ingress"]
    tcp = [(port["port"], port["endPort"]) for port in peers["ports"] if port["protocol"] == "TCP"]
    assert tcp == [(1, OUR_PORT - 1), (OUR_PORT + 1, 65535)]
    assert peers["from"] == [{"podSelector": POLICY["spec"]["podSelector"]}]
    assert scrapers["ports"] == [{"protocol": "TCP", "port": OUR_PORT}]


def test_it_says_nothing_about_where_workers_connect_to() -> None:
    """The policy isolates only ingress: a policy for egress would cut off users' data loaders."""
    assert POLICY["spec"]["policyTypes"] == ["Ingress"]
