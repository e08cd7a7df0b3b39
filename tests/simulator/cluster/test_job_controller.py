"""The simulated Job controller passes the cases that kube-controller-manager passes in tests/cluster."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from inplace.simulator.cluster import virtual_time
from inplace.simulator.cluster.cluster import virtual_cluster
from tests.conformance.api import Api
from tests.conformance.job_cases import CASES

NAMESPACE = "conformance"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_job_controller(case: Callable[[Api], Awaitable[None]]) -> None:
    """The simulated controller passes the case in virtual time."""

    async def run() -> None:
        async with virtual_cluster(nodes=0, controller="none") as cluster:
            await cluster.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}])
            await case(Api(cluster.transport(), NAMESPACE))

    virtual_time.run(run())
