"""Pod templates on the real kube-apiserver: what it refuses is what the embedded one and lint refuse."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from inplace.common.kube.client import KubeClient
from testbed.binaries import find_binaries
from testbed.control_plane import ControlPlane
from tests.conformance.api import NEWEST_ONLY
from tests.conformance.templates import APISERVER_FLAGS, Spoiler, refusal, verdicts
from tests.http_transport import transport_for
from tests.simulator.apiserver.test_templates import ROWS, job

pytestmark = [pytest.mark.asyncio(loop_scope="module"), NEWEST_ONLY]

SEEDS = 100  # the program of tests/conformance/templates.py tries thousands


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def real() -> AsyncIterator[KubeClient]:
    """Give a client of a kube-apiserver that allows privileged containers, as every cluster's does."""
    async with ControlPlane(find_binaries(), apiserver_flags=APISERVER_FLAGS) as plane:
        transport = transport_for(plane.kubeconfig)
        yield KubeClient(transport, user_agent="templates", field_manager="templates")
        await transport.close()


async def test_each_row_is_true(real: KubeClient) -> None:
    """The real server takes and refuses what the rows say, with their words."""
    wrong = []
    for kind, field, good, bad, words in ROWS:
        taken = await refusal(real, job(kind, field, good))
        refused = await refusal(real, job(kind, field, bad))
        if taken or words not in refused:
            wrong.append((kind, field, words, taken, refused))
    assert wrong == []


async def test_spoiled_templates_are_judged_alike(real: KubeClient) -> None:
    """Of spoiled templates the embedded server and lint refuse those that the real one refuses, and no others."""
    found = await verdicts(real, [Spoiler(seed).spoiled() for seed in range(SEEDS)])
    wrong: list[Any] = [one for one in found if not one.is_equal and not one.reason]
    assert wrong == []
    assert {bool(one.real) for one in found} == {True, False}
