"""One agent, from its first request to its exit, over real sockets."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest

from inplace.agent.settings.config import AgentConfig
from inplace.agent.settings.exit_code import ExitCode
from inplace.common.protocol.errors import InvariantError
from tests.agent.rig import CONFIG, NotedBarrier, Rig
from tests.agent.scripted_server import (
    NOTHING,
    ONE_EPOCH,
    SYNC_THEN_RESTART,
    Exchange,
    ScriptedServer,
    Step,
    accept_patch,
    answers,
    bookmark,
    ends,
    jobset,
    line,
    lists_nothing,
    plain,
    refuses,
    sends,
    until_patched,
)

pytestmark = pytest.mark.asyncio


async def test_a_start_is_a_list_a_patch_and_a_watch_on_one_connection() -> None:
    """From its start to the in-place restart an agent sends three requests on one connection, with these bytes."""
    rig = Rig()
    async with ScriptedServer(lists=[jobset(0, rv=17)], watches=[SYNC_THEN_RESTART]) as server:
        code = await rig.run(server, restart_exit_code=77)

    assert code == 77
    assert [request.method for request in server.received] == ["GET", "PATCH", "GET"]
    assert server.connections == 1
    listed, patch, watch = server.received
    for read in (listed, watch):
        assert read.path == "/apis/jobset.x-k8s.io/v1alpha2/namespaces/ns/jobsets"
        assert read.headers["accept"] == "application/json;as=Table;g=meta.k8s.io;v=v1, application/json"
    assert listed.query == {"fieldSelector": "metadata.name=train", "includeObject": "None"}
    assert 3000 <= int(watch.query.pop("timeoutSeconds")) < 3600
    assert watch.query == {
        "watch": "1",
        "fieldSelector": "metadata.name=train",
        "allowWatchBookmarks": "true",
        "includeObject": "None",
        "resourceVersion": "17",
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
    }
    assert patch.path == "/api/v1/namespaces/ns/pods/train-w-0-0"
    assert patch.query == {"fieldManager": "inplace-agent", "fieldValidation": "Ignore"}
    assert patch.headers["content-type"] == "application/strategic-merge-patch+json"
    assert "as=PartialObjectMetadata" in patch.headers["accept"]
    body = json.loads(patch.body)
    assert re.fullmatch(r"v1,view=\d+,at=\d+", body["metadata"]["annotations"].pop("inplace.dev/phases"))
    assert body == {
        "metadata": {
            "uid": "pod-uid",
            "annotations": {"jobset.sigs.k8s.io/epoch": "1", "jobset.sigs.k8s.io/in-place-restart-attempt": "0"},
        }
    }
    assert rig.barrier.lifts == [1]
    assert not rig.barrier.running


async def test_a_known_previous_epoch_makes_the_list_cheap() -> None:
    """When PREVIOUS_EPOCH is known and S has reached it, the list asks for version 0; no quorum read is made."""
    rig = Rig()
    async with ScriptedServer(lists=[jobset(3, 3)], watches=[[jobset(4, 3), jobset(4, 4)]]) as server:
        await rig.run(server, previous_epoch=3)
    (listed,) = server.listed
    assert listed.query["resourceVersion"] == "0"
    assert rig.barrier.lifts == [4]


async def test_a_stale_list_is_followed_by_a_consistent_one() -> None:
    """When the cheap view is older than this Pod's announcement, the agent lists consistently, at once."""
    rig = Rig()
    lists, watches = [jobset(2, 2), jobset(3, 3, rv=40)], [[jobset(4, 3), jobset(4, 4)]]
    async with ScriptedServer(lists=lists, watches=watches) as server:
        await rig.run(server, previous_epoch=3)
    assert [request.query.get("resourceVersion") for request in server.received] == ["0", None, None, "40"]
    assert server.told("jobset.sigs.k8s.io/epoch") == ["4"]
    assert rig.clock.slept_s == []


async def test_a_stale_event_is_followed_by_a_consistent_list() -> None:
    """When the cheap list has no JobSet and a watch event shows an old one, the agent lists consistently."""
    rig = Rig()
    lists, watches = [lists_nothing, jobset(3, 3, rv=40)], [[jobset(2, 2)], [jobset(4, 3), jobset(4, 4)]]
    async with ScriptedServer(lists=lists, watches=watches) as server:
        await rig.run(server, previous_epoch=3)
    assert [request.query.get("resourceVersion") for request in server.listed] == ["0", None]
    assert rig.barrier.lifts == [4]


async def test_the_watch_waits_for_the_announcements_answer() -> None:
    """The watch is sent AFTER the announcement is answered, on the same connection."""
    watched_before_the_answer: list[int] = []

    async def answer(exchange: Exchange) -> None:
        for _ in range(100):
            await asyncio.sleep(0)
        watched_before_the_answer.append(len(exchange.server.watched))
        await accept_patch(exchange)

    async with ScriptedServer(lists=[jobset(0)], watches=[SYNC_THEN_RESTART], answer=answer) as server:
        await Rig().run(server)
    assert watched_before_the_answer == [0]


async def test_a_server_without_send_initial_events_is_watched_from_the_version() -> None:
    """A server that refuses sendInitialEvents costs one request more, only once."""
    rig = Rig()
    watches = [[refuses(422, "Invalid")], [jobset(1, 0, rv=20), ends], [jobset(1, 1)]]
    async with ScriptedServer(lists=[jobset(0)], watches=watches) as server:
        await rig.run(server)
    assert [watch.query.get("sendInitialEvents") for watch in server.watched] == ["true", None, None]
    assert [watch.query["resourceVersion"] for watch in server.watched] == ["10", "10", "20"]
    assert len(server.listed) == 1
    assert rig.clock.slept_s == []


async def test_bypass_lifts_without_an_announcement() -> None:
    """In a JobSet without in-place restart the barrier lifts, and the Pod gets no annotation."""
    for view in (
        jobset(strategy="Recreate"),
        jobset(strategy=None),
        jobset(strategy="BlockingRecreate", restart_in_place="10"),
        jobset(disabled=""),
        jobset(disabled="true"),
        jobset(strategy=None, restart_in_place="10", disabled=""),
    ):
        rig = Rig()
        async with ScriptedServer(lists=[view]) as server:
            running = asyncio.create_task(rig.run(server))
            while not rig.barrier.lifts:  # noqa: ASYNC110 - the barrier is in memory
                await asyncio.sleep(0)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
        assert rig.barrier.lifts == [None]
        assert server.requests("PATCH") == []


@pytest.mark.parametrize("strategy", [None, "Recreate"])
@pytest.mark.parametrize("annotation", ["10", "ten"])
async def test_the_annotation_is_as_good_as_the_strategy(strategy: str | None, annotation: str) -> None:
    """The group restarts in place; how often is the controller's matter, so a misspelt number stops no agent."""
    views = [jobset(*epochs, rv=rv, strategy=strategy, restart_in_place=annotation) for *epochs, rv in EPOCHS]
    rig = Rig()
    async with ScriptedServer(lists=[views[0]], watches=[views[1:]]) as server:
        assert await rig.run(server) == 88
    assert rig.barrier.lifts == [1]


EPOCHS = ((0, 0, 10), (1, 0, 20), (1, 1, 30))


async def test_an_exhausted_epoch_has_its_own_exit_code() -> None:
    """When int32 has no next epoch the agent exits with that code and announces nothing."""
    async with ScriptedServer(lists=[jobset(2**31 - 1, 0)]) as server:
        assert await Rig().run(server) == ExitCode.EPOCHS_EXHAUSTED
    assert server.requests("PATCH") == []


async def test_the_jobset_may_come_after_the_agent() -> None:
    """After an empty list the agent watches until the JobSet is there."""
    rig = Rig()
    watches = [[bookmark(5), ends], [jobset(0, kind="ADDED"), until_patched(), *SYNC_THEN_RESTART]]
    async with ScriptedServer(watches=watches) as server:
        await rig.run(server)
    assert [watch.query["resourceVersion"] for watch in server.watched] == ["1", "5"]
    assert len(server.listed) == 1
    assert rig.barrier.lifts == [1]


async def test_reports_say_what_the_barrier_waits_for() -> None:
    """The barrier gets a report of each agent phase, with the epochs seen."""
    rig = Rig()
    async with ScriptedServer(watches=[ONE_EPOCH]) as server:
        await rig.run(server)
    phases = list(dict.fromkeys(report.phase for report in rig.barrier.reports))
    assert phases == ["starting", "announcing", "waiting", "lifted", "restarting"] or phases == [
        "starting",
        "announcing",
        "lifted",
        "restarting",
    ]
    assert rig.barrier.reports[-1].deprecated == 1
    assert rig.metrics.epoch == 1
    assert rig.metrics.lifted
    assert rig.metrics.requests == {("list", "ok"): 1, ("watch", "ok"): 1, ("patch", "ok"): 1}


async def test_the_slot_comes_before_the_first_request() -> None:
    """An agent with a slot sends nothing before it."""
    rig = Rig()
    async with ScriptedServer(watches=[ONE_EPOCH]) as server:
        await rig.run(server, start_slot_s=9.0)
    assert rig.clock.slept_s == [9.0]


async def test_cancelling_an_agent_closes_all_it_opened() -> None:
    """Cancellation ends the watch and stops the barrier in every agent phase."""
    rig = Rig(CONFIG)
    async with ScriptedServer() as server:
        running = asyncio.create_task(rig.run(server))
        await server.until(lambda: len(server.watched) == 1)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert not rig.barrier.running


async def test_an_upstream_controller_is_followed(tmp_path: Path) -> None:
    """With upstream's manifest, CRD and status, attempts count from 0 and the agent sends the same three requests."""
    (tmp_path / "namespace").write_text("ns")
    env = {"JOBSET_NAME": "train", "POD_NAME": "train-w-0-0", "INPLACE_SERVICE_ACCOUNT_DIR": str(tmp_path)}

    def shows(**status: int) -> Step:
        return sends(line("MODIFIED", plain(None, None) | {"status": status}))

    lists = [answers(200, NOTHING | {"items": [plain(None, None) | {"status": {}}]})]
    script = [
        shows(currentInPlaceRestartAttempt=0),
        shows(currentInPlaceRestartAttempt=0, previousInPlaceRestartAttempt=0),
    ]
    rig = Rig(AgentConfig.from_env(env))
    async with ScriptedServer(lists=lists, watches=[script]) as server:
        assert await rig.run(server) == 1
    assert [request.method for request in server.received] == ["GET", "PATCH", "GET"]
    assert server.connections == 1
    assert {read.headers["accept"] for read in server.requests("GET")} == {"application/json"}
    assert "sendInitialEvents" not in server.watched[0].query, "whole objects have no column definitions to get over"
    assert b'"jobset.sigs.k8s.io/in-place-restart-attempt":"0"' in server.requests("PATCH")[0].body
    assert rig.barrier.lifts == [1]


async def test_a_bug_is_never_swallowed() -> None:
    """An exception that is no ApiError ends the agent and stops the barrier."""

    class Buggy(NotedBarrier):
        def lift(self, epoch: int | None) -> None:
            raise InvariantError("planted")

    rig = Rig(barrier=Buggy())
    async with ScriptedServer(lists=[jobset(strategy="Recreate")]) as server:
        with pytest.raises(ExceptionGroup) as raised:
            await rig.run(server)
    assert raised.group_contains(InvariantError, match="planted")
    assert not rig.barrier.running
