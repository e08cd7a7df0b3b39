"""Send a case's write to an embedded API server, and compare its refusal with the expected words."""

from __future__ import annotations

from collections.abc import Awaitable
from random import Random

from inplace.common.kube.client import KubeClient
from inplace.common.kube.clock import LoopClock
from inplace.common.kube.errors import ApiError
from inplace.common.kube.resources import JOBSETS, KubeObject
from inplace.simulator.apiserver import ApiServer, InMemoryTransport
from tests.controller.manifests import changed, jobset
from tests.deploy.crd_cases import Create, Update


def client_of(*definitions: KubeObject) -> KubeClient:
    """Return a client of a new server that has these definitions and policies."""
    server = ApiServer(clock=LoopClock(0.0), rng=Random(1))
    server.load(definitions)
    return KubeClient(InMemoryTransport(server), user_agent="test", field_manager="test")


async def refusal(write: Awaitable[KubeObject]) -> ApiError | None:
    """Return the refusal of a write; None when it was accepted."""
    try:
        await write
    except ApiError as refused:
        return refused
    return None


async def create_refusal(api: KubeClient, case: Create) -> ApiError | None:
    """Return the refusal of a new JobSet."""
    return await refusal(api.create(JOBSETS, "default", case.manifest))


async def update_refusal(api: KubeClient, case: Update) -> ApiError | None:
    """Return the refusal of a change."""
    stored = await api.create(JOBSETS, "default", case.before or jobset())
    return await refusal(api.replace(JOBSETS, "default", "train", changed(stored, case.path, case.value)))


def words_missing(words: tuple[str, ...], error: ApiError | None) -> list[str]:
    """Return the expected words that the answer to a write lacks."""
    if error is None:
        return list(words)
    return [word for word in words if word not in error.message] if words else [error.message]
