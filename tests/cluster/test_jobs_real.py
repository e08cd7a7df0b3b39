"""Suspend, resume, back-off and failure by kube-controller-manager's Job controller: what the simulated one passes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from testbed.control_plane import ControlPlane
from tests.conformance.api import Api
from tests.conformance.job_cases import CASES
from tests.http_transport import transport_for


@pytest.mark.asyncio(loop_scope="session")
async def test_job_controller(full_control_plane: ControlPlane) -> None:
    """The real controller passes each case, side by side: they wait for real back-offs, in namespaces of their own."""

    async def passed(case: Callable[[Api], Awaitable[None]]) -> None:
        namespace = await full_control_plane.create_namespace()
        transport = transport_for(full_control_plane.kubeconfig)
        try:
            await case(Api(transport, namespace))
        except Exception as error:
            error.add_note(f"case {case.__name__}")
            raise
        finally:
            await transport.close()
            async with full_control_plane.client() as api:
                await api.delete(f"/api/v1/namespaces/{namespace}")

    ends = await asyncio.gather(*map(passed, CASES), return_exceptions=True)
    broken = [end for end in ends if isinstance(end, BaseException)]
    if broken:
        raise BaseExceptionGroup("cases that the real controller does not pass", broken)
