"""A hung collective: every worker of the group falls silent at once, and the group restarts once."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from inplace.common.protocol.rank import StallSettings
from inplace.common.wire import names as wire
from inplace.common.wire.mode import GUARDED, Mode
from inplace.simulator.campaign.catalogue import CATALOGUE
from inplace.simulator.campaign.run import Outcome, ScheduledFault, run_scenario
from inplace.simulator.campaign.scenario import Scenario
from inplace.simulator.campaign.world import World

PODS = 6
AT_S = 150.0  # every rank has made its first steps
UNTIL_S = 200.0


class Collective:
    """A fault: all workers hang at one moment; it notes what the group did about that."""

    def __init__(self, hung: int) -> None:
        self.hung = hung
        self.epochs: list[int] = []
        self.restart: dict[str, Any] = {}

    async def __call__(self, world: World, rng: Random, name: str) -> None:
        """Hang, and wait for the restart."""
        before = wire.epochs_of_status(world.jobset["status"])[0]
        for training in list(world.machine.workers.values())[: self.hung]:
            training.hang()
        world.note_fault(name, "the collective")
        await world.clock.sleep(40.0)  # a limit follows the steps that ranks were seen to take
        self.epochs = [before, wire.epochs_of_status(world.jobset["status"])[0]]
        self.restart = dict(world.jobset["status"]["lastGroupRestart"])


def hung(mode: Mode, hung_pods: int) -> tuple[Collective, Outcome]:
    """Run a group in which so many workers hang."""
    strike = Collective(hung_pods)
    fault = replace(CATALOGUE["worker-exit"], strike=strike)
    scenario = Scenario(pods_per_job=PODS, mode=mode, limits=StallSettings(4.0, 8.0))
    return strike, run_scenario(3, scenario, (ScheduledFault(0, AT_S, fault),), until_s=UNTIL_S)


@pytest.mark.parametrize("mode", GUARDED)
@pytest.mark.parametrize("hung_pods", [pytest.param(1, marks=pytest.mark.slow), PODS])
def test_a_hang_is_one_restart(mode: Mode, hung_pods: int) -> None:
    """Whoever hangs: one epoch further, with the trigger `stalled`."""
    strike, outcome = hung(mode, hung_pods)
    assert outcome.violation is None
    assert strike.epochs[1] - strike.epochs[0] == 1
    assert strike.restart["trigger"] == "stalled"
