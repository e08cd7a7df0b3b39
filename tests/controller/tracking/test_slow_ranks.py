"""Ranks that worked longer than their peers are named when the restart ends: in the status and its Event."""

from __future__ import annotations

import pytest

from inplace.common.wire import names as wire
from tests.controller.crew import Crew
from tests.controller.manifests import jobset, replicated_job
from tests.controller.rig import Rig

pytestmark = pytest.mark.virtual_time

GROUP = jobset(jobs=[replicated_job(pods=8)])
LABELS = {"namespace": "default", "jobset": "train"}


async def announce(crew: Crew, epoch: int, works: list[str]) -> None:
    """Let Pods announce an epoch, with how long their ranks worked."""
    for rank, (pod, work) in enumerate(zip(crew.pods.values(), works, strict=False)):
        told = f"v1,view=64,quiet=100,step=40{work},of={rank}" if work else "v1,view=64,quiet=100,step=40"
        await crew.annotate(pod, wire.epoch_annotations(epoch) | {wire.PHASES: told})


async def fail(rig: Rig, crew: Crew, epoch: int) -> None:
    """Let the worker of the first Pod die."""
    await rig.tell(crew, next(iter(crew.pods.values())), f"v1,epoch={epoch},code=1,at=1700000000123")


async def test_a_slow_rank_is_named_with_the_restart_s_end(rig: Rig) -> None:
    """No write is added; the restart after it, in which nobody tells, names nobody."""
    crew = await rig.started(GROUP)
    third = list(crew.pods.values())[2]
    before = rig.writes("/jobsets/train/status")
    await fail(rig, crew, 1)
    await announce(crew, 2, [",work=10000", ",work=9800", ",work=31000", *[",work=10100"] * 5])
    await rig.settle(0.1)
    entry = await crew.last_restart()
    assert entry["slowRanks"] == [{"pod": third, "rank": 2, "workMilliseconds": 3100}]
    assert entry["typicalWorkMilliseconds"] == 1010
    assert rig.writes("/jobsets/train/status") == before + 2
    (event,) = await rig.events("GroupRestartFinished")
    assert event["note"].endswith(f"; rank 2 ({third}) works 3.1 s on a step, half of the pods less than 1.0 s")
    await fail(rig, crew, 2)
    await announce(crew, 3, [""] * 8)
    await rig.settle(0.1)
    entry = await crew.last_restart()
    assert (entry["epoch"], "slowRanks" in entry, "typicalWorkMilliseconds" in entry) == (3, False, False)


async def test_a_new_controller_knows_those_that_told_before_it(rig: Rig) -> None:
    """It reads them with its first list, as it reads their epochs."""
    crew = await rig.started(GROUP)
    await fail(rig, crew, 1)
    await announce(crew, 2, [",work=31000", *[",work=10000"] * 6])
    await rig.settle(0.1)
    await rig.change_controller()
    await crew.annotate(list(crew.pods.values())[7], wire.epoch_annotations(2))
    await rig.settle(0.1)
    entry = await crew.last_restart()
    assert (entry["epoch"], [one["rank"] for one in entry["slowRanks"]]) == (2, [0])


@pytest.mark.parametrize("garbage", [",work=", ",work=1,work=2", ",work=99999999", ",work=-1"])
async def test_garbage_is_counted_and_names_nobody(rig: Rig, garbage: str) -> None:
    """The others are compared all the same."""
    crew = await rig.started(GROUP)
    await fail(rig, crew, 1)
    await announce(crew, 2, [garbage, ",work=31000", *[",work=10000"] * 6])
    await rig.settle(0.1)
    assert [one["rank"] for one in (await crew.last_restart())["slowRanks"]] == [1]
    assert rig.sample("inplace_unreadable_phases_total") == 1
