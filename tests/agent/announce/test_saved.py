"""An agent whose ranks told of steps: it says so with each announcement, and lifts by a list alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from inplace.agent.settings.epoch_file import EpochFile
from inplace.common.protocol.members import Members
from inplace.common.protocol.resume import Resume
from inplace.common.wire import names as wire
from tests.agent.announce.test_members import OVER, shown, stored
from tests.agent.rig import ImpatientClock, Rig
from tests.agent.scripted_server import ScriptedServer, Step, answers, until_patched

pytestmark = pytest.mark.asyncio

SAID = "v1,epoch=7,ran=6,local=120.110,shared=90"


def pod(folder: Path, **config: Any) -> tuple[Rig, dict[str, Any]]:
    """Return a Pod of a group without spares, whose only rank saved in run 6."""
    (folder / "progress").mkdir()
    (folder / "progress" / ".rank-0.saved").write_text("v1 6 120.110 90\n")
    settings = {"restart_scope": "w", "progress_dir": str(folder / "progress"), "previous_epoch": 6, "ran_epoch": 6}
    return Rig(memory=EpochFile(str(folder / "epoch"))), settings | config


async def said(rig: Rig, config: dict[str, Any], *views: Step, first: Step | None = None, **more: Any) -> list[Any]:
    """Run the agent on these views after its announcement; return what it announced."""
    first = first or shown(6, 6, None)
    async with ScriptedServer(
        lists=[first], watches=[(first, until_patched(), *views)], **({"answer": stored("100")} | more)
    ) as server:
        await rig.run(server, **config)
        return [(each[wire.EPOCH], each.get(wire.RAN)) for each in server.annotations]


def everyone(epoch: int, resume: Resume | None = None) -> Members:
    """Return the list of a group without spares."""
    return Members(epoch, 2, seen=100, resume=resume, everyone=True)


@pytest.mark.parametrize("with_head_start", [True, False])
async def test_it_lifts_by_a_list_of_everyone(tmp_path: Path, with_head_start: bool) -> None:
    """Which says from where it goes on; the file of what was told is there before."""
    rig, config = pod(tmp_path, with_head_start=with_head_start)
    views = (shown(7, 6, everyone(7, Resume(110, local=True))), OVER)
    assert (await said(rig, config, *views))[0] == ("7", SAID)
    assert rig.barrier.lifts == [7]
    assert [line.get("resume_step") for line in rig.log.of("barrier_lifted")] == [110]
    assert (tmp_path / "epoch.saved").read_text() == "v1 7 120.110 90 - - 0"


async def test_without_a_list_it_does_not_lift(tmp_path: Path) -> None:
    """Others may have seen one, and go on from its step; the next announcement tells of no step of another line."""
    rig, config = pod(tmp_path)
    announced = await said(rig, config, shown(7, 6, None), until_patched(2), OVER)
    assert rig.barrier.lifts == []
    assert announced[:2] == [("7", SAID), ("8", "v1,epoch=8,ran=6,shared=90")]


async def test_a_refused_announcement_is_sent_again_as_it_was(tmp_path: Path) -> None:
    """Whatever the ranks' files say meanwhile."""
    rig, config = pod(tmp_path)
    replies = iter([answers(500, {}), answers(500, {})])

    async def answer(exchange: Any) -> None:
        (tmp_path / "progress" / ".rank-0.saved").write_text("v1 6 130 95\n")
        await next(replies, stored("100"))(exchange)

    views = (until_patched(3), shown(7, 6, everyone(7)), OVER)
    announced = await said(rig, config, *views, answer=answer)
    assert announced[:3] == [("7", SAID)] * 3
    assert rig.barrier.lifts == [7]


async def test_a_reminder_says_the_same(tmp_path: Path) -> None:
    """A list that counts the first announcement still counts."""
    rig, config = pod(tmp_path)
    rig.clock = ImpatientClock(reminders=1)
    announced = await said(rig, config, until_patched(2), shown(7, 6, everyone(7)), OVER)
    assert announced[:2] == [("7", SAID)] * 2
    assert rig.barrier.lifts == [7]
