"""The conformance suite of tests/conformance, on a real kube-apiserver with its controllers.

The list of cases is the same: every test function of the suite's modules is taken over, so a case that only one of
the two servers passes is a failure here or in `make test`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from inplace.common.kube.resources import CUSTOM_RESOURCE_DEFINITIONS
from testbed.control_plane import ControlPlane
from tests.conformance import SUITE
from tests.conformance.api import DEADLINE_S, Api
from tests.conformance.widgets import CRD, WIDGETS
from tests.http_transport import transport_for

pytestmark = pytest.mark.asyncio

for _module in SUITE:
    for _name, _case in vars(_module).items():
        if _name.startswith("test_"):
            assert _name not in globals(), f"two cases are called {_name}"
            globals()[_name] = _case


async def _install_widgets(api: Api) -> None:
    """Create the CRD if it is not there, and return when its objects are served."""
    answer = await api.send("POST", CUSTOM_RESOURCE_DEFINITIONS.path(), CRD)
    assert answer.status in (201, 409), answer.body
    async with asyncio.timeout(DEADLINE_S):
        while (await api.send("GET", WIDGETS.path(), resourceVersion="0")).status != 200:  # noqa: ASYNC110 -- the other side is a server: there is no event to wait for
            await asyncio.sleep(0.05)  # the handler starts a moment AFTER Established


@pytest_asyncio.fixture
async def api(full_control_plane: ControlPlane) -> AsyncIterator[Api]:
    """A real API server with the Widget CRD and a namespace for this case."""
    transport = transport_for(full_control_plane.kubeconfig)
    namespace = await full_control_plane.create_namespace("conformance")
    api = Api(transport, namespace)
    try:
        await _install_widgets(api)
        yield api
        await api.send("DELETE", f"/api/v1/namespaces/{namespace}")
    finally:
        await transport.close()
