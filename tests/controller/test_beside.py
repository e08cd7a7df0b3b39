"""Beside another JobSet controller, ours reconciles only JobSets whose managedBy names it."""

from __future__ import annotations

import pytest

from inplace.common.wire import names as wire
from tests.controller.manifests import changed, jobset
from tests.controller.rig import Rig

pytestmark = pytest.mark.virtual_time


@pytest.mark.parametrize(
    ("managed_by", "is_beside", "is_taken"),
    [
        (None, False, True),
        (None, True, False),
        (wire.MANAGED_BY_BUILT_IN, False, True),
        (wire.MANAGED_BY_BUILT_IN, True, False),
        (wire.MANAGED_BY_US, False, True),
        (wire.MANAGED_BY_US, True, True),
        ("acme.io/other", False, False),
        ("acme.io/other", True, False),
    ],
)
async def test_whose_a_jobset_is(managed_by: str | None, is_beside: bool, is_taken: bool) -> None:
    """Our JobSet gets its Jobs; another controller's JobSet gets no write, not even to its status."""
    rig = Rig()
    async with rig.running(rig.controller(is_beside=is_beside)):
        manifest = jobset() if managed_by is None else changed(jobset(), "spec.managedBy", managed_by)
        crew = await rig.submit(manifest)
        await rig.settle(30.0)
        assert bool(await crew.jobs()) == is_taken
        assert bool(rig.writes("/status")) == is_taken


async def test_what_happens_to_anothers_jobs_is_not_our_business() -> None:
    """With --beside, changes of another JobSet's Jobs and Pods cause no write and no error in the log."""
    rig = Rig()
    upstream = rig.controller(lease_name="another")  # plays the other controller
    async with rig.running(upstream):
        crew = await rig.started(jobset())
    ours = rig.controller(is_beside=True, lease_name="ours")
    async with rig.running(ours):
        rig.requests.clear()
        await crew.announce_all(2)
        await rig.finish_job(crew, "train-workers-0", "Failed", 30.0, reason="BackoffLimitExceeded")
        assert [request.path for request in rig.requests if request.method not in ("GET", "PUT")] == []
