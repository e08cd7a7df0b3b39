"""Suspend, resume, back-off and failure by kube-controller-manager's Job controller: what the simulated one passes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from testbed.control_plane import ControlPlane
from tests.conformance.api import Api
from tests.conformance.job_cases import CASES
from tests.http_transport import transport_for

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
async def test_job_controller(
    case: Callable[[Api], Awaitable[None]], full_control_plane: ControlPlane, full_namespace: str
) -> None:
    """The real controller passes the case."""
    transport = transport_for(full_control_plane.kubeconfig)
    try:
        await case(Api(transport, full_namespace))
    finally:
        await transport.close()
