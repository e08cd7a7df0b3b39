"""deploy/workers: the NetworkPolicy for a namespace of worker Pods."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from inplace.common.injection.pod import OTHER_PORTS
from inplace.common.wire import names as wire
from inplace.common.wire.barrier import OUR_PORT, UPSTREAM_PORT
from tests.controller.act.test_agent_bad_input import worker
from tests.controller.act.test_job_settings import job_of
from tests.deploy.network_policies import Place, may_reach

POLICY = yaml.safe_load((Path(__file__).parents[2] / "deploy/workers/network.yaml").read_text())
AGENTS = {OUR_PORT, UPSTREAM_PORT, *OTHER_PORTS}
PORTS = range(1, 65536)
MINE = Place("default", {wire.JOBSET_NAME: "train"})
PEER = Place("default", {wire.JOBSET_NAME: "another"})
MONITORING = Place("monitoring", namespace_labels={"inplace.dev/metrics": "true"})
STRANGERS = (Place("default"), Place("other", {wire.JOBSET_NAME: "train"}), Place("monitoring"))


def reached(source: Place, protocol: str = "TCP") -> set[int]:
    """Return the ports of a worker's Pod that another Pod reaches."""
    return {port for port in PORTS if may_reach([POLICY], source, MINE, port, protocol)}


def port_of(*declared: int) -> int:
    """Return the barrier's port of an added agent, beside a worker that declares some."""
    built, findings = job_of(worker(ports=[{"containerPort": port} for port in declared]))
    assert findings == []
    agent: dict[str, Any] = built["spec"]["template"]["spec"]["initContainers"][-1]
    return next((int(one["value"]) for one in agent["env"] if one["name"] == "BARRIER_PORT"), OUR_PORT)


@pytest.mark.attack
@pytest.mark.parametrize("taken", range(len(OTHER_PORTS) + 1))
def test_no_other_worker_reaches_the_agents_port(taken: int) -> None:
    """Whichever ports a worker declares, the agent's is one that no peer reaches; scrapers do."""
    declared = (OUR_PORT, *OTHER_PORTS)[:taken]
    port = port_of(*declared)
    assert port not in declared
    assert not may_reach([POLICY], PEER, MINE, port)
    assert may_reach([POLICY], MONITORING, MINE, port)


@pytest.mark.attack
def test_who_reaches_which_port() -> None:
    """Of 65,535 ports peers reach all but the agents', scrapers those alone, and nobody else reaches one."""
    assert reached(PEER) == set(PORTS) - AGENTS
    assert reached(PEER, "UDP") == set(PORTS)
    assert reached(MONITORING) == AGENTS
    assert reached(MONITORING, "UDP") == set()
    for stranger in STRANGERS:
        assert reached(stranger) == reached(stranger, "UDP") == set()


def test_pods_of_no_jobset_are_left_alone() -> None:
    """The policy selects the Pods of JobSets, whoever asks."""
    assert all(may_reach([POLICY], one, Place("default"), 80) for one in (*STRANGERS, PEER))


def test_it_says_nothing_about_where_workers_connect_to() -> None:
    """The policy isolates only ingress: a policy for egress would cut off users' data loaders."""
    assert POLICY["spec"]["policyTypes"] == ["Ingress"]
