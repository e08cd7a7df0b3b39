"""An agent of a group with spares: what it reads and writes, and what never lets its worker start."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from inplace.common.protocol.members import Members
from inplace.common.wire import names as wire
from inplace.common.wire.members import members_text
from tests.agent.rig import Rig
from tests.agent.scripted_server import Exchange, ScriptedServer, Step, answers, ends, jobset, scoped, until_patched

pytestmark = pytest.mark.asyncio

OF_SLOT: dict[str, Any] = {"restart_scope": "w", "slot": 2, "hosts": "*"}
OVER = jobset(scopes=[{"name": "w", wire.SYNCED_EPOCH: 9, wire.DEPRECATED_EPOCH: 9}])  # ends every agent that waits


def shown(synced: int, deprecated: int, members: Members | str | None = "") -> Step:
    """Show the group; None leaves the field out."""
    text = members_text(members) if isinstance(members, Members) else members
    entry = {"name": "w", wire.SYNCED_EPOCH: synced, wire.DEPRECATED_EPOCH: deprecated}
    return jobset(scopes=[entry | ({} if text is None else {wire.MEMBERS_FIELD: text})])


def stored(version: object) -> Step:
    """Answer a PATCH with this version of the Pod."""
    return answers(200, {"metadata": {"resourceVersion": version}})


async def run(*views: Step, first: Step | None = None, version: object = "100", **config: Any) -> tuple[Rig, list[Any]]:
    """Run an agent until `views`, after its first announcement, end it; return it and what it announced."""
    rig, first = Rig(), first or shown(0, 0)
    head_start = config.pop("with_head_start", False)
    async with ScriptedServer(
        lists=[first], watches=[(first, until_patched(), *views)], answer=stored(version)
    ) as server:
        await rig.run(server, with_head_start=head_start, **(OF_SLOT | config))
        return rig, [(each[wire.EPOCH], each.get(wire.RAN)) for each in server.annotations]


@pytest.mark.parametrize("as_table", [True, False])
async def test_a_member_that_was_counted_lifts(as_table: bool) -> None:
    """From rows and from whole objects; the log names its rank."""
    rig, said = await run(shown(1, 0, Members(1, 3, seen=100)), OVER, prefer_table=as_table)
    assert rig.barrier.lifts == [1]
    assert said[0] == ("1", "v1,epoch=1,ran=0")
    (lifted,) = rig.log.of("barrier_lifted")
    assert (lifted["rank"], lifted["size"]) == (2, 3)
    assert any(report.rank == 2 and not report.spare for report in rig.barrier.reports)


async def test_the_head_start_says_it_too() -> None:
    """What a Pod ran before is in its first announcement, which is the only one."""
    rig, said = await run(
        shown(5, 4, Members(5, 3, seen=100)), OVER, first=shown(4, 4), with_head_start=True, ran_epoch=3
    )
    assert rig.barrier.lifts == [5]
    assert said[0] == ("5", "v1,epoch=5,ran=3")
    assert [epoch for epoch, _ in said].count("5") == 1


@pytest.mark.parametrize("version", ["101", "", "x", "-1", 100, None, str(2**64)])
async def test_an_announcement_that_was_not_counted_lifts_nothing(version: object) -> None:
    """A newer one, or one whose version nobody can compare: this Pod is a spare, and says so once."""
    rig, said = await run(shown(1, 0, Members(1, 3, seen=100)), until_patched(2), OVER, version=version)
    assert rig.barrier.lifts == []
    assert [epoch for epoch, _ in said[:2]] == ["1", "2"]


async def test_a_spare_says_so_once_in_each_epoch() -> None:
    """However many views come; its barrier says that it is one."""
    one, two = (Members(epoch, 2, seen=100) for epoch in (1, 2))
    views = (shown(1, 0, one), until_patched(2), shown(1, 0, one), shown(1, 0, one))
    rig, said = await run(*views, shown(2, 1, two), until_patched(3), shown(2, 1, two), OVER)
    assert rig.barrier.lifts == []
    assert [line["epoch"] for line in rig.log.of("spare_waiting")] == [1, 2]
    assert any(report.spare and report.rank is None for report in rig.barrier.reports)
    assert [ran for _, ran in said[:3]] == ["v1,epoch=1,ran=0", "v1,epoch=2,ran=0", "v1,epoch=3,ran=0"]


@pytest.mark.parametrize("members", [None, "", "v2", members_text(Members(2, 3, seen=200))])
async def test_without_the_members_of_the_epoch_nothing_lifts(members: str | None) -> None:
    """No text, one that cannot be read, one of another epoch: the agent waits for the controller."""
    rig, said = await run(shown(1, 0, members), OVER)
    assert rig.barrier.lifts == []
    assert said[0][0] == "1"


async def nothing_was_announced(exchange: Exchange) -> None:
    """Check that no PATCH has come so far."""
    assert exchange.server.requests("PATCH") == []


@pytest.mark.parametrize("first", [jobset(1, 0), scoped(other=(1, 0))])
async def test_a_table_without_the_scope_never_lets_a_worker_start(first: Step) -> None:
    """An older CRD has no such column, and the plain epochs are another group's."""
    rig = Rig()
    script = (first, nothing_was_announced, shown(0, 0), until_patched(), OVER)
    async with ScriptedServer(lists=[first], watches=[script], answer=stored("100")) as server:
        await rig.run(server, **OF_SLOT)
    assert rig.barrier.lifts == []
    assert len(rig.log.of("restart_scope_unknown")) == 2


async def test_an_agent_without_members_joins_no_group_with_spares() -> None:
    """It would lift as soon as it sees S; log and barrier name the variable. Bypassed, it starts its worker."""
    rig = Rig()
    script = (shown(0, 0), shown(1, 0, Members(1, 3, seen=100)), nothing_was_announced)
    bypass = (jobset(strategy="Recreate"), ends)
    async with ScriptedServer(lists=[shown(0, 0)], watches=[(*script, *bypass)]) as server:
        running = asyncio.create_task(rig.run(server, restart_scope="w"))
        await server.until(lambda: len(server.watched) == 2)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert rig.barrier.lifts == [None]
    told = rig.log.of("restart_scope_unknown")
    assert len(told) == 3
    assert all("metadata.annotations['inplace.dev/members']" in line["message"] for line in told)


async def test_without_a_slot_the_announcement_is_what_it_was() -> None:
    """No annotation more, and the answer's version is not asked."""
    rig = Rig()
    script = (scoped(w=(0, 0)), until_patched(), scoped(w=(1, 0)), scoped(w=(1, 1)))
    async with ScriptedServer(lists=[scoped(w=(0, 0))], watches=[script], answer=stored("x")) as server:
        await rig.run(server, restart_scope="w", phases_annotation=False)
        (patch,) = server.requests("PATCH")
    assert rig.barrier.lifts == [1]
    assert json.loads(patch.body) == {"metadata": {"uid": "pod-uid", "annotations": wire.epoch_annotations(1)}}
