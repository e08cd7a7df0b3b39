"""Kueue admits, holds and ends JobSets; its Workload says what became of each."""

from __future__ import annotations

import pytest

from tests.cluster.clients.manifests import jobset
from tests.cluster.clients.queue import Queue

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_admitted_and_run(queue: Queue) -> None:
    """A queued JobSet is created suspended, admitted within 2 s, and all its Pods run."""
    stored = await queue.submit(jobset())
    assert stored["spec"]["suspend"] is True
    await queue.admitted()
    await queue.pods_are_ready(2)
    await queue.workload_is("Admitted")
    assert await queue.workloads_so_far() == 1
