"""The simulated Job controller passes the cases that kube-controller-manager passes in tests/cluster."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from inplace.common.kube.clock import LoopClock
from inplace.simulator.cluster import virtual_time
from inplace.simulator.cluster.cluster import VIRTUAL_EPOCH_S, Cluster
from tests.conformance.api import Api
from tests.conformance.job_cases import CASES

NAMESPACE = "conformance"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_job_controller(case: Callable[[Api], Awaitable[None]]) -> None:
    """The simulated controller passes the case in virtual time."""

    async def run() -> None:
        clock = LoopClock(VIRTUAL_EPOCH_S)
        async with Cluster(nodes=0, runtime="model", controller="none", clock=clock) as cluster:
            await cluster.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}])
            await case(Api(cluster.transport(), NAMESPACE))

    virtual_time.run(run())
