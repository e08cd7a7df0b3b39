"""The Event at the start of a group restart has the restart's number."""

from __future__ import annotations

import pytest

from tests.controller.manifests import jobset
from tests.controller.rig import Rig

pytestmark = pytest.mark.virtual_time


@pytest.mark.parametrize("answer_s", [0.0, 0.2])
async def test_the_start_of_a_restart_says_which_one_it_is(rig: Rig, answer_s: float) -> None:
    """The Event's number is the written status's, also when the watch is faster than the write's answer."""
    rig.answer_latency_s = lambda request: answer_s if request.path.split("?")[0].endswith("/status") else 0.0
    crew = await rig.started(jobset(restarts_max=100))
    for epoch in (2, 3, 4):
        dead, *_ = crew.pods.values()
        await crew.set_worker(dead, run=epoch - 1, exit_code=1)  # seen BEFORE any Pod announces
        await rig.settle()
        await rig.meet(crew, epoch)
        for pod in crew.pods.values():
            await crew.set_worker(pod, run=epoch)
        await rig.settle()
    notes = sorted(event["note"] for event in await rig.events("GroupRestartStarted"))
    assert [note.partition("in place, ")[2].partition(";")[0] for note in notes] == [
        f"restart {number} of 100" for number in (1, 2, 3)
    ]
