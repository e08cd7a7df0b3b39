"""A group with spares on a real node: a spare plays a lost rank, and when the members end so does the JobSet."""

from __future__ import annotations

import time
from typing import Final

import pytest

from inplace.common.kube.resources import JOBS
from inplace.common.wire import names as wire
from testbed.node.cluster import Cluster
from testbed.node.group import SETTLED_S_MAX, Group, is_ready, running_group
from testbed.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="session")

MEMBERS: Final = 3
LOST: Final = 1
BACK_S_MAX: Final = 35.0  # the Job controller waits for 10 s; a probe that is held in vain takes 55 s


def endings(group: Group) -> dict[str, tuple[str, int | None]]:
    """Return how each Pod ended, by its uid: its phase, and its worker's exit code, None while that runs.

    kubelet ends the agent beside a worker that has ended, and its exit code counts for nothing.
    """
    return {
        pod["metadata"]["uid"]: (pod["status"]["phase"], exit_code)
        for pod in group.pods()
        for each in pod["status"].get("containerStatuses", ())
        for exit_code in [(each["state"].get("terminated") or {}).get("exitCode")]
    }


async def test_a_spare_plays_the_rank_of_a_deleted_member(cluster: Cluster, mode: str) -> None:
    """One restart; the other members keep their ranks, and no two epochs ever ran at once.

    The replacement of the lost Pod is the next spare, and Ready. When the members end with 0 so do the spares; the Job
    is Complete and the JobSet is Completed.
    """
    async with running_group(cluster, mode, pods=MEMBERS, spares=1) as group:
        await group.until_ready(spares=1)
        before, ranks = group.uids(), group.ranks(1)
        assert sorted(ranks) == list(range(MEMBERS))
        (spare,) = before - set(ranks.values())

        deleted_s = time.monotonic()
        await group.delete(next(pod for pod in group.live() if pod["metadata"]["uid"] == ranks[LOST]))
        await group.until_runs(2)
        restarted_s = time.monotonic()
        assert group.ranks(2) == ranks | {LOST: spare}

        await until(
            lambda: len([pod for pod in group.live() if is_ready(pod)]) == MEMBERS + 1,
            "a new spare that is Ready",
            timeout_s=BACK_S_MAX,
            also=group.state,
        )
        print(
            f"restarted after {restarted_s - deleted_s:.1f} s, a new spare after {time.monotonic() - deleted_s:.1f} s"
        )
        assert group.epochs() == (2, 1)
        assert group.broken() == []

        members = set(group.ranks(2).values())
        for pod in group.live():
            if pod["metadata"]["uid"] in members:
                group.order(pod, "exit 0")
        await group.until_ended(wire.TERMINAL_COMPLETED)
        completed_s = time.monotonic()
        await until_complete(cluster, group)
        print(f"the Job is Complete {time.monotonic() - completed_s:.1f} s after the JobSet is Completed")
        ended = {uid: ending for uid, ending in endings(group).items() if uid != ranks[LOST]}
        assert len(ended) == MEMBERS + 1
        assert set(ended.values()) == {("Succeeded", 0)}
        assert group.epochs() == (2, 1)
        assert group.broken() == []


async def until_complete(cluster: Cluster, group: Group) -> None:
    """Return when the group's only Job is Complete."""

    async def holds() -> bool:
        (job,) = (await cluster.client.list(JOBS, group.namespace))["items"]
        conditions = job.get("status", {}).get("conditions") or ()
        return any((each["type"], each["status"]) == ("Complete", "True") for each in conditions)

    await until(holds, "the Job is Complete", timeout_s=SETTLED_S_MAX, also=group.state)
