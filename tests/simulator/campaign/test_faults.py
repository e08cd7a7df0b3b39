"""Every fault of the catalogue has an effect and is counted."""

from __future__ import annotations

from collections import Counter

import pytest

from inplace.simulator.campaign.catalogue import CATALOGUE, FaultSite
from inplace.simulator.campaign.run import ScheduledFault, run_scenario, run_seed
from inplace.simulator.campaign.scenario import Scenario
from inplace.simulator.campaign.world import SPARE_NODES

pytestmark = pytest.mark.slow

SEEDS_MAX = 12  # some faults need a scenario with their target: two controllers, a supervisor


@pytest.mark.parametrize("name", CATALOGUE)
def test_the_fault_strikes(name: str) -> None:
    """A schedule of this fault alone makes its counter go up within a few seeds, and breaks nothing."""
    for seed in range(SEEDS_MAX):
        outcome = run_seed(seed, faults=[CATALOGUE[name]])
        assert outcome.violation is None, f"seed {seed}, --faults {name}: {outcome.violation}"
        if outcome.fired[name]:
            return
    pytest.fail(f"expected {name} to strike in one of {SEEDS_MAX} seeds, saw that it never did")


def test_no_fault_needs_a_node() -> None:
    """Faults of kubelets do nothing, without an error, when all nodes are dead."""
    nodes = 1 + SPARE_NODES  # a node for all Pods of the default scenario
    names = ("node-death",) * nodes + ("partition-kubelet", "kubelet-pause", "node-death-and-return")
    strikes = tuple(ScheduledFault(number, 1.0 + number / 10, CATALOGUE[name]) for number, name in enumerate(names))
    outcome = run_scenario(1, Scenario(), strikes, until_s=5.0)
    assert outcome.violation is None
    assert outcome.fired == {"node-death": nodes}


def test_a_storm_is_over_when_faults_are() -> None:
    """A fault that lasts has no effect after the faults' end, when a restart's cost is measured."""
    for seed in range(SEEDS_MAX):
        storm = ScheduledFault(0, 4.9, CATALOGUE["api-410-storm"])
        outcome = run_scenario(seed, Scenario(), (storm,), until_s=5.0, keeps=True)
        assert outcome.violation is None, f"seed {seed}: {outcome.violation}"
        calm = next(number for number, line in enumerate(outcome.lines) if " calm " in line)
        assert not [line for line in outcome.lines[calm:] if " fault " in line]


def test_each_place_has_its_faults() -> None:
    """Each place has its number of faults; dropping or moving one must change this test."""
    assert Counter(fault.place for fault in CATALOGUE.values()) == {
        FaultSite.API: 17,
        FaultSite.NETWORK: 13,
        FaultSite.CONTROLLER: 10,
        FaultSite.AGENT: 7,
        FaultSite.NODE: 17,
        FaultSite.USER: 9,
        FaultSite.TIME: 3,
    }
