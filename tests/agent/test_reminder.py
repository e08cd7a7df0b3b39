"""An agent that waits long announces again, because its announcement may have been lost."""

from __future__ import annotations

import asyncio

import pytest

from inplace.agent.agent import REMINDER_S
from tests.agent.rig import ImpatientClock, Rig
from tests.agent.scripted_server import ScriptedServer, accept_patch, in_turn, jobset, resets, until_patched

pytestmark = pytest.mark.asyncio


def _impatient(reminders: int) -> Rig:
    return Rig(clock=ImpatientClock(reminders=reminders))


async def test_a_long_wait_sends_the_same_announcement_again() -> None:
    """Reminders have the same bytes, so that the server stores nothing new, and jitter; the wait counts once."""
    rig = _impatient(2)
    async with ScriptedServer(watches=[[jobset(0), until_patched(3), jobset(1, 0), jobset(1, 1)]]) as server:
        assert await rig.run(server) == 88
    assert len({patch.body for patch in server.requests("PATCH")}) == 1
    assert len(server.requests("PATCH")) == 3
    assert len(rig.log.of("announcing_again")) == 2
    assert rig.barrier.lifts == [1]
    first_s, second_s = rig.clock.slept_s[:2]
    assert first_s != second_s
    assert all(REMINDER_S[0] <= slept_s <= REMINDER_S[1] for slept_s in (first_s, second_s))


async def test_a_group_that_comes_together_is_not_reminded_of() -> None:
    """A reminder that is due after the sync is not sent, so a start costs one PATCH."""
    rig = Rig()
    async with ScriptedServer(watches=[[jobset(0), until_patched(1), jobset(1, 0), jobset(1, 1)]]) as server:
        assert await rig.run(server) == 88
    assert len(server.requests("PATCH")) == 1
    assert not asyncio.all_tasks() - {asyncio.current_task()}


async def test_a_reminder_that_fails_is_sent_again() -> None:
    """A failed reminder is repeated like a failed first announcement."""
    rig = _impatient(1)
    watches = [[jobset(0), until_patched(3), jobset(1, 0), jobset(1, 1)]]
    async with ScriptedServer(watches=watches, answer=in_turn(accept_patch, resets)) as server:
        assert await rig.run(server) == 88
    assert len(server.requests("PATCH")) == 3
    assert rig.barrier.lifts == [1]
