"""Every way in which a watch can end: the agent's reaction and its log line."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from inplace.agent.announce.retry_budget import DENIED_BASE_S, RETRY_BASE_S, RETRY_CAP_S
from inplace.common.wire import names as wire
from tests.agent.rig import ImpatientClock, Rig
from tests.agent.scripted_server import (
    COLUMNS,
    ONE_EPOCH,
    SYNC_THEN_RESTART,
    ScriptedServer,
    Step,
    answers,
    bookmark,
    ends,
    error_event,
    jobset,
    line,
    plain,
    refuses,
    resets,
    sends,
    shouts,
    silence,
    table,
    until_patched,
)

pytestmark = pytest.mark.asyncio


async def run(
    *watches: tuple[Step, ...], rig: Rig | None = None, lists: Sequence[Step] = ()
) -> tuple[Rig, ScriptedServer]:
    """Run an agent whose last watch makes it restart; it must have lifted epoch 1, with one patch."""
    rig = rig or Rig()
    async with ScriptedServer(lists=lists, watches=watches) as server:
        assert await rig.run(server) == 88
    assert rig.barrier.lifts == [1]
    assert len(server.requests("PATCH")) == 1
    assert len(server.watched) == len(watches)
    return rig, server


async def test_clean_end_resumes_at_once_from_the_last_version() -> None:
    """After a clean end: the next watch at once, from the bookmark, on the same connection."""
    rig, server = await run((jobset(0), until_patched(), bookmark(17), ends), SYNC_THEN_RESTART)
    assert server.watched[1].query["resourceVersion"] == "17"
    assert len(server.listed) == 1
    assert rig.clock.slept_s == []
    assert rig.metrics.watch_endings == {"closed": 1}
    assert server.connections == 2


async def test_clean_ends_in_a_row_are_slowed_down() -> None:
    """A server that closes each watch at once is not asked in a tight loop."""
    rig, _ = await run((ends,), (ends,), (ends,), (ends,), ONE_EPOCH)
    assert len(rig.clock.slept_s) == 2
    assert all(0 <= slept_s <= 2 * RETRY_BASE_S for slept_s in rig.clock.slept_s)


async def test_reset_resumes_after_backoff() -> None:
    """A dropped connection is followed by a wait and a watch from the last version seen."""
    rig, server = await run((jobset(0, rv=12), until_patched(), resets), SYNC_THEN_RESTART)
    assert server.watched[1].query["resourceVersion"] == "12"
    assert len(rig.clock.slept_s) == 1
    assert rig.metrics.watch_endings == {"broken": 1}


async def test_silence_resumes_after_the_inactivity_bound() -> None:
    """A connection without a byte for the inactivity bound counts as dead."""
    rig = Rig(clock=ImpatientClock(is_quiet=True))
    rig, server = await run((jobset(0, rv=12), until_patched(), silence), SYNC_THEN_RESTART, rig=rig)
    assert server.watched[1].query["resourceVersion"] == "12"
    assert rig.metrics.watch_endings == {"silent": 1}


@pytest.mark.parametrize(
    ("first", "cause"),
    [
        (refuses(401, "Unauthorized"), "unauthenticated"),
        (refuses(403, "Forbidden"), "forbidden"),
        (refuses(404, "NotFound"), "not_found"),
        (refuses(410, "Expired"), "gone"),
        (refuses(429, "TooManyRequests"), "busy"),
        (refuses(503), "busy"),
        (resets, "broken"),
    ],
)
async def test_a_list_that_fails_is_asked_for_again(first: Step, cause: str) -> None:
    """What a list can come to has the names that a watch's endings have; nothing is watched before it is answered."""
    rig, server = await run(SYNC_THEN_RESTART, lists=[first, jobset(0)])
    assert rig.metrics.requests == {("list", cause): 1, ("list", "ok"): 1, ("patch", "ok"): 1, ("watch", "ok"): 1}
    assert len(server.listed) == 2
    assert all("list jobsets" in failed["cure"] for failed in rig.log.of("watch_failed") if cause == "forbidden")


@pytest.mark.parametrize(
    "garbage",
    [
        b"<html>",
        b"[]",
        b"{}",
        b'{"kind":"JobSetList","metadata":{"resourceVersion":"1"},"items":7}',
        b'{"kind":"JobSetList","metadata":{"resourceVersion":"1"},"items":[{}]}',
    ],
)
async def test_garbage_instead_of_a_list_moves_nothing(garbage: bytes) -> None:
    """A list that cannot be read ends like a garbled watch, and is asked for again."""
    rig, _ = await run(SYNC_THEN_RESTART, lists=[answers(200, garbage), jobset(0)])
    assert rig.metrics.watch_endings == {"garbled": 1}


async def test_401_names_the_token_and_retries() -> None:
    """Refused credentials are retried soon (kubelet rotates them) and the log says where to look."""
    rig, _ = await run((refuses(401, "Unauthorized"),), ONE_EPOCH)
    (failed,) = rig.log.of("watch_failed")
    assert "token" in failed["cure"]
    assert rig.clock.slept_s[0] <= RETRY_BASE_S
    assert rig.metrics.watch_endings == {"unauthenticated": 1}


async def test_403_names_the_missing_permission_and_retries_slowly() -> None:
    """A watch that RBAC forbids says which verb, resource and namespace to allow."""
    rig, _ = await run((refuses(403, "Forbidden"),), ONE_EPOCH)
    (failed,) = rig.log.of("watch_failed")
    assert "watch jobsets in namespace ns" in failed["cure"]
    assert rig.clock.slept_s[0] <= DENIED_BASE_S
    assert rig.metrics.watch_endings == {"forbidden": 1}
    assert rig.barrier.reports[-1].problem is None
    assert any("forbidden" in (report.problem or "") for report in rig.barrier.reports)


async def test_404_names_the_missing_crd() -> None:
    """A cluster without the JobSet CRD is waited for, and named."""
    rig, _ = await run((refuses(404, "NotFound"),), ONE_EPOCH)
    (failed,) = rig.log.of("watch_failed")
    assert "CRD" in failed["cure"]


async def test_410_begins_anew_with_a_consistent_list() -> None:
    """A version that left the server's history is dropped, though the first list was a cheap one."""
    rig = Rig()
    lists = [jobset(1, 1), jobset(2, 1, rv=50)]
    watches = [(resets,), (error_event(410, "Expired"),), (jobset(2, 2),)]
    async with ScriptedServer(lists=lists, watches=watches) as server:
        await rig.run(server, previous_epoch=1)
    assert rig.barrier.lifts == [2]
    assert [request.query.get("resourceVersion") for request in server.listed] == ["0", None]
    assert [request.query["resourceVersion"] for request in server.watched] == ["10", "10", "50"]
    assert rig.metrics.watch_endings == {"broken": 1, "gone": 1}
    assert len(rig.clock.slept_s) == 1


async def test_410_for_ever_is_slowed_down() -> None:
    """A server that answers 410 to everything is not asked in a tight loop."""
    rig, _ = await run(*[(error_event(410, "Expired"),)] * 4, ONE_EPOCH)
    assert len(rig.clock.slept_s) == 2


async def test_429_waits_at_least_its_retry_after() -> None:
    """Retry-After is a floor under the random wait, and widens it: nobody comes back in step."""
    rig, _ = await run((refuses(429, "TooManyRequests", retry_after="7"),), ONE_EPOCH)
    assert 7 <= rig.clock.slept_s[0] <= 7 + 7
    assert rig.metrics.watch_endings == {"busy": 1}


@pytest.mark.parametrize("code", [500, 502, 503, 504])
async def test_5xx_is_retried_after_backoff(code: int) -> None:
    """A failing server is asked again, a little later."""
    rig, _ = await run((refuses(code),), ONE_EPOCH)
    assert 0 <= rig.clock.slept_s[0] <= RETRY_BASE_S


async def test_backoff_grows_and_is_capped() -> None:
    """Failures in a row wait longer and longer, up to the cap."""
    rig, _ = await run(*[(refuses(503),)] * 12, ONE_EPOCH)
    assert max(rig.clock.slept_s[:2]) <= 2 * RETRY_BASE_S
    assert RETRY_CAP_S / 10 < max(rig.clock.slept_s) <= RETRY_CAP_S


@pytest.mark.parametrize(
    "garbage",
    [
        b"<html>proxy</html>\n",
        b"[]\n",
        b"{}\n",
        b'{"type":"MODIFIED","object":{}}\n',
        b'{"type":"MODIFIED","object":{"kind":"Table","metadata":{},"rows":7}}\n',
        b'{"type":"SURPRISE","object":{}}\n',
        b'{"type":"ERROR","object":"no"}\n',
        b"\xff\xfe\n",
    ],
)
async def test_garbage_is_a_broken_watch(garbage: bytes) -> None:
    """Lines that are no watch events end the watch, and it is resumed from the last good version."""
    rig, server = await run((jobset(0, rv=12), until_patched(), sends(garbage)), SYNC_THEN_RESTART)
    assert server.watched[1].query["resourceVersion"] == "12"
    assert rig.metrics.watch_endings == {"garbled": 1}


async def test_garbage_instead_of_http_is_a_broken_watch() -> None:
    """A peer that speaks no HTTP is an error like any other."""
    rig, _ = await run((shouts,), ONE_EPOCH)
    assert rig.metrics.watch_endings == {"broken": 1}


async def test_half_a_line_is_a_broken_watch() -> None:
    """A line cut by the stream's end is not acted on."""
    half = line("MODIFIED", table(["train", 1, 1, None, None, "InPlaceRestart", None, None, "uid-1"], 66))[:-30]
    rig, server = await run((jobset(0, rv=12), until_patched(), sends(half), ends), SYNC_THEN_RESTART)
    assert server.watched[1].query["resourceVersion"] == "12"
    assert rig.metrics.watch_endings == {"garbled": 1}


async def test_lines_may_be_cut_anywhere() -> None:
    """A line that arrives byte by byte is one event."""
    rows = line("MODIFIED", table(["train", 1, 0, None, None, "InPlaceRestart", None, None, "uid-1"], 20))
    bytewise = [sends(rows[index : index + 1]) for index in range(len(rows))]
    rig, _ = await run((jobset(0), until_patched(), *bytewise, jobset(1, 1)))
    assert rig.metrics.watch_endings == {}


async def test_another_jobset_is_ignored() -> None:
    """A view of another name (a proxy that drops the selector) moves nothing, and is told."""
    rig, _ = await run(
        (jobset(5, 5, name="other"), jobset(0), until_patched(), jobset(9, 9, name="other"), *SYNC_THEN_RESTART)
    )
    assert [ignored["seen"] for ignored in rig.log.of("jobset_ignored")] == ["other", "other"]


async def test_a_deleted_jobset_is_waited_for_and_its_namesake_ignored() -> None:
    """After DELETED the agent waits; a JobSet recreated under the name has other Pods."""
    script = (
        jobset(0),
        until_patched(),
        jobset(0, kind="DELETED"),
        jobset(1, 0, uid="uid-2", kind="ADDED"),
        jobset(1, 1, uid="uid-2"),
        *SYNC_THEN_RESTART,
    )
    rig, _ = await run(script)
    assert len(rig.log.of("jobset_deleted")) == 1
    assert [ignored["seen_uid"] for ignored in rig.log.of("jobset_ignored")] == ["uid-2", "uid-2"]


async def test_a_namesake_is_ignored_from_the_start_when_the_uid_is_known() -> None:
    """With JOBSET_UID, the first view of a namesake is not acted on either."""
    rig = Rig()
    script = (jobset(7, 7, uid="uid-0"), jobset(0), until_patched(), *SYNC_THEN_RESTART)
    async with ScriptedServer(watches=[script]) as server:
        await rig.run(server, jobset_uid="uid-1")
    assert rig.barrier.lifts == [1]


async def test_a_malformed_status_is_ignored() -> None:
    """Epochs that are no int32 are the controller's fault: told, not acted on, and the watch goes on."""
    rig, _ = await run((jobset("7", 0), jobset(-1, 0), jobset(0), until_patched(), *SYNC_THEN_RESTART))
    assert len(rig.log.of("jobset_status_malformed")) == 2


async def test_a_table_without_our_columns_is_followed_by_whole_objects() -> None:
    """Upstream's CRD lacks the columns: whole objects are asked for from then on, which costs one request."""
    upstream = table(["train", "Running", 3], 9, columns=["Name", "TerminalState", "Restarts"])
    rig, server = await run((ends,), SYNC_THEN_RESTART, lists=[answers(200, upstream), jobset(0)])
    assert ["as=Table" in read.headers["accept"] for read in server.requests("GET")] == [True, False, False, False]
    assert "includeObject" not in server.watched[0].query
    assert rig.clock.slept_s == []


async def test_a_definition_older_than_the_annotation_is_followed_by_whole_objects() -> None:
    """Its rows would hide the annotation, and the worker would start without its group."""
    columns = [name for name in COLUMNS if name != wire.COLUMN_RESTART_IN_PLACE]
    older = table(["train", 0, 0, None, None, None, None, "uid-1"], 9, columns=columns)

    def view(synced: int, deprecated: int, rv: int) -> Step:
        return jobset(synced, deprecated, rv=rv, strategy=None, restart_in_place="10")

    lists = [answers(200, older), view(0, 0, 10)]
    _, server = await run((ends,), (view(1, 0, 20), view(1, 1, 30)), lists=lists)
    assert ["as=Table" in read.headers["accept"] for read in server.requests("GET")] == [True, False, False, False]


async def test_columns_that_vanish_are_followed_by_whole_objects() -> None:
    """A CRD replaced under an open watch: the next row lacks the columns, and everything is read anew."""
    upstream = table(["train", "Running", 3], 9, columns=["Name", "TerminalState", "Restarts"])
    lists = [jobset(0), jobset(0, rv=12)]
    _, server = await run((sends(line("MODIFIED", upstream)),), SYNC_THEN_RESTART, lists=lists)
    assert ["as=Table" in watch.headers["accept"] for watch in server.watched] == [True, False]


async def test_a_server_that_ignores_the_table_is_read_all_the_same() -> None:
    """Whole objects where rows were asked for are read as whole objects."""
    whole = [
        sends(line("MODIFIED", plain(synced, deprecated, rv=40))) for synced, deprecated in ((0, 0), (1, 0), (1, 1))
    ]
    await run((whole[0], until_patched(), *whole[1:]))


async def test_406_is_followed_by_whole_objects() -> None:
    """A server that cannot make Tables is asked for whole objects at once."""
    rig, server = await run(SYNC_THEN_RESTART, lists=[refuses(406, "NotAcceptable"), jobset(0)])
    assert ["as=Table" in read.headers["accept"] for read in server.requests("GET")] == [True, False, False]
    assert rig.clock.slept_s == []


async def test_columns_may_come_with_the_first_event_only() -> None:
    """Later events of a stream may leave the column definitions out."""
    later = table(["train", 1, 0, None, None, "InPlaceRestart", None, None, "uid-1"], 21)
    del later["columnDefinitions"]
    await run((jobset(0), until_patched(), sends(line("MODIFIED", later)), jobset(1, 1)))
