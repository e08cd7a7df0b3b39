"""The cache agrees with the server: one test for each way in which a watch can end, and for normal work."""

import asyncio
from random import Random

import msgspec
import pytest
import structlog
from structlog.testing import capture_logs

from inplace.common.kube.client import KubeClient
from inplace.common.kube.clock import LoopClock
from inplace.common.kube.codec import SlimMeta, slim
from inplace.common.kube.http.request import Request, Response, TooLargeError
from inplace.common.kube.informer import BACKOFF_CAP_S, TURN_OBJECTS, Informer
from inplace.common.kube.resources import CONFIG_MAPS
from inplace.common.kube.watch import INACTIVITY_S
from inplace.simulator.apiserver import ApiServer, InMemoryTransport
from tests.common.kube.answers import refusal
from tests.common.kube.informer_rig import BreakingTransport, Rig, config_map, once
from tests.common.kube.turns import Turns

pytestmark = pytest.mark.virtual_time


async def test_it_lists_once_and_then_follows() -> None:
    """Existing objects are reported as new, later ones as they change, with one list and one watch."""
    rig = Rig()
    await rig.create("before")
    async with rig.running():
        await rig.informer.wait_synced()
        assert rig.changes == [(None, "before")]
        await rig.create("after")
        await rig.admin.patch(CONFIG_MAPS, "default", "after", {"data": {"a": "1"}})
        await rig.admin.delete(CONFIG_MAPS, "default", "before")
        await rig.settle()
    assert rig.changes[1:] == [(None, "after"), ("after", "after"), ("before", None)]
    assert (rig.lists(), rig.watches()) == (1, 1)


async def test_a_long_list_comes_in_pages_and_is_one_moment() -> None:
    """Seven objects in pages of three are three requests; `has_synced` waits for the last."""
    rig = Rig(page_size=3)
    for number in range(7):
        await rig.create(f"c{number}")
    async with rig.running():
        await rig.informer.wait_synced()
        assert len(rig.informer) == 7
    assert rig.lists() == 3


async def test_others_run_while_a_long_list_is_taken_in() -> None:
    """While the cache processes many objects, the loop has a turn after each ten of them."""
    turns, told_in = Turns(), list[int]()

    def note(*_: object) -> None:
        if turns.number == 0:
            turns.count()
        told_in.append(turns.number)

    rig = Rig(note, resync_s=60.0)
    for number in range(10 * TURN_OBJECTS):
        await rig.create(f"c{number:04}")
    async with rig.running():
        for seconds, created, told in ((1.0, 0, 10), (1.0, 10, 10), (70.0, 0, 20)):
            turns.number, told_in[:] = 0, []
            rig.server.load([config_map(f"d{number:04}") for number in range(created * TURN_OBJECTS)])
            await rig.settle(seconds)
            assert len(told_in) == told * TURN_OBJECTS
            assert max(told_in.count(one) for one in told_in) <= TURN_OBJECTS


async def test_a_page_that_is_too_large_is_asked_for_in_parts() -> None:
    """When a page is larger than the transport's bound, smaller pages are requested and no object is lost."""

    def only_small_pages(request: Request) -> Response | None:
        if "limit=50" in request.path:
            raise TooLargeError("too large")
        return None

    rig = Rig(page_size=500)
    for number in range(12):
        await rig.create(f"c{number:02}")
    rig.fault = only_small_pages
    async with rig.running():
        await rig.informer.wait_synced()
        assert len(rig.informer) == 12
    limits = [request.path.partition("limit=")[2].partition("&")[0] for request in rig.requests]
    assert limits == ["500", "50", "5", "5", "5", ""]


async def test_an_expired_page_is_followed_by_a_list_in_one_piece() -> None:
    """When a continue token has expired, the list is read in one piece."""
    rig = Rig(page_size=2)
    for number in range(5):
        await rig.create(f"c{number}")

    def fault(request: Request) -> Response | None:
        return refusal(410, "Expired") if "continue=" in request.path else None

    rig.fault = fault
    async with rig.running():
        await rig.settle(30.0)
        assert len(rig.informer) == 5
    assert "limit=" not in rig.requests[2].path


async def test_closed_resumes_at_once_from_the_last_version() -> None:
    """A watch that ends cleanly is opened again without a list and without a pause."""
    rig = Rig()
    async with rig.running():
        await rig.informer.wait_synced()
        await rig.settle(5.0)
        await rig.create("a")
        await rig.settle()
        rig.server.drop_watches("", "configmaps")
        await rig.settle(0.01)
        assert rig.watches() == 2
        await rig.create("b")
        await rig.settle()
    assert rig.shown() == {"a", "b"}
    assert rig.lists() == 1
    assert rig.endings == ["Closed"]


async def test_a_server_that_ends_every_watch_at_once_is_not_hammered() -> None:
    """Clean ends in a row without an event between them are followed by a backoff."""
    rig = Rig()
    rig.fault = lambda request: Response(200, {}, b"") if "watch=" in request.path else None
    async with rig.running():
        await rig.settle(60.0)
    assert rig.watches() < 40


async def test_gone_lists_again_and_tells_what_vanished() -> None:
    """After a 410 the cache becomes equal to a new list, and missed deletions are reported."""
    rig = Rig()
    await rig.create("stays")
    await rig.create("vanishes")
    async with rig.running():
        await rig.informer.wait_synced()
        rig.fault = once(refusal(410, "Expired"), watch=True)
        rig.server.drop_watches("", "configmaps")
        await rig.admin.delete(CONFIG_MAPS, "default", "vanishes")
        await rig.create("appears")
        await rig.settle(5.0)
    assert ("vanishes", None) in rig.changes
    assert rig.shown() == {"stays", "appears"}
    assert rig.lists() == 2
    assert rig.changes.count((None, "stays")) == 1


async def test_gone_inside_a_stream_lists_again() -> None:
    """An ERROR event with a 410 means the same as a refused watch."""
    rig = Rig()
    status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
    body = msgspec.json.encode({"type": "ERROR", "object": status}) + b"\n"
    rig.fault = once(Response(200, {}, body), watch=True)
    async with rig.running():
        await rig.settle(5.0)
    assert rig.lists() == 2
    assert rig.endings == ["Gone"]


@pytest.mark.parametrize("code", [429, 500, 503])
async def test_busy_waits_for_retry_after_and_never_lists(code: int) -> None:
    """After a 429 the informer waits Retry-After plus jitter and resumes the watch without a list."""
    rig = Rig()
    async with rig.running():
        await rig.settle()
        rig.fault = once(refusal(code, "", **{"retry-after": "7"}), watch=True)
        rig.server.drop_watches("", "configmaps")
        await rig.settle(6.9)
        assert rig.watches() == 2
        await rig.settle(1.0)
        assert rig.watches() == 3
    assert rig.lists() == 1


async def test_unauthenticated_retries_with_what_the_transport_reads_then() -> None:
    """A 401 is logged and retried, with the token that the transport reads then."""
    rig = Rig()
    rig.fault = once(refusal(401, "Unauthorized"), watch=False)
    with capture_logs() as logs:
        async with rig.running():
            await rig.settle(5.0)
            assert rig.informer.has_synced
    assert rig.endings == ["Unauthenticated"]
    assert [entry["event"] for entry in logs if entry["log_level"] == "error"] == ["credentials_refused"]


@pytest.mark.parametrize(("code", "reason"), [(403, "Forbidden"), (404, "NotFound")])
async def test_denied_retries_slowly_and_says_what_is_denied(code: int, reason: str) -> None:
    """A missing right or CRD gives few retries and a clear log line, and its cure is noticed."""
    rig = Rig()
    rig.fault = lambda _: refusal(code, reason)
    with capture_logs() as logs:
        async with rig.running():
            await rig.settle(120.0)
            assert 3 <= len(rig.requests) <= 8
            assert not rig.informer.has_synced
            rig.fault = lambda _: None
            await rig.settle(60.0)
            assert rig.informer.has_synced
    assert any("configmaps" in entry.get("path", "") and reason in entry["message"] for entry in logs)


@pytest.mark.parametrize("mode", ["refuse", "reset", "garbled", "nonsense", "silent"])
async def test_broken_resumes_and_loses_nothing(mode: str) -> None:
    """After a broken connection the next watch begins at the last seen version."""
    rig = Rig()
    transport = BreakingTransport(InMemoryTransport(rig.server, user="informer"), rig.clock)
    rig.start(transport)
    async with rig.running():
        await rig.informer.wait_synced()
        await rig.settle(1.0)
        transport.mode = mode
        rig.server.drop_watches("", "configmaps")
        await rig.create("meanwhile")
        await rig.settle(INACTIVITY_S + 1.0 if mode == "silent" else 3.0)
        transport.mode = ""
        await rig.settle(BACKOFF_CAP_S + 1.0)
        assert rig.shown() == {"meanwhile"}
    assert rig.lists() == 1
    assert "Broken" in rig.endings


async def test_bookmarks_keep_the_version_fresh_and_are_told_to_nobody() -> None:
    """An idle watch can be resumed although all history before its bookmark is gone."""
    rig = Rig()
    async with rig.running():
        await rig.informer.wait_synced()
        for number in range(3):
            await rig.admin.create(CONFIG_MAPS, "kube-system", config_map(f"other{number}"))
        await rig.settle(130.0)
        rig.server.compact()
        rig.server.drop_watches("", "configmaps")
        await rig.settle(5.0)
    assert rig.lists() == 1
    assert rig.changes == []


async def test_resync_tells_every_object_again() -> None:
    """A resync calls the handlers with every object again."""
    rig = Rig(resync_s=100.0)
    await rig.create("a")
    async with rig.running():
        await rig.settle(350.0)
    assert rig.changes[0] == (None, "a")
    assert rig.changes.count(("a", "a")) == 3


async def test_a_replaced_object_is_told_as_a_deletion_and_a_creation() -> None:
    """A new UID under the same name is reported as deletion and creation, also from a list."""
    rig = Rig()
    await rig.create("a")
    async with rig.running():
        await rig.informer.wait_synced()
        rig.fault = once(refusal(410, "Expired"), watch=True)
        rig.server.drop_watches("", "configmaps")
        await rig.admin.delete(CONFIG_MAPS, "default", "a")
        await rig.create("a")
        await rig.settle(5.0)
    assert rig.changes == [(None, "a"), ("a", None), (None, "a")]


async def test_an_absorbed_write_is_shown_at_once_and_told_once() -> None:
    """Our own write is in the cache BEFORE the watch shows it, and is reported once."""
    rig = Rig()
    async with rig.running():
        await rig.informer.wait_synced()
        await rig.settle()
        written = await rig.create("ours")
        rig.informer.absorb(written)
        assert rig.informer.get("default", "ours") is not None
        await rig.settle()
    assert rig.changes == [(None, "ours")]


async def test_an_answer_that_the_watch_has_passed_is_not_absorbed() -> None:
    """A late answer cannot bring a deleted object back."""
    rig = Rig()
    async with rig.running():
        await rig.informer.wait_synced()
        written = await rig.create("short-lived")
        await rig.admin.delete(CONFIG_MAPS, "default", "short-lived")
        await rig.settle()
        rig.informer.absorb(written)
        assert rig.informer.get("default", "short-lived") is None


async def test_an_unexpected_object_is_left_out_and_the_others_are_shown() -> None:
    """One object that does not decode is an error in the log, not the end of the cache."""

    class Strict(msgspec.Struct):
        metadata: SlimMeta
        data: dict[str, int] = {}

    clock = LoopClock(0.0)
    server = ApiServer(clock=clock, rng=Random(1))
    server.load([config_map("good"), config_map("odd", key="text")])
    client = KubeClient(InMemoryTransport(server), user_agent="t", field_manager="t")
    informer = Informer(client, CONFIG_MAPS, slim(Strict), clock=clock, rng=Random(1), log=structlog.get_logger())
    with capture_logs() as logs:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(informer.run())
            await informer.wait_synced()
            task.cancel()
    assert [obj.metadata.name for obj in informer] == ["good"]
    assert [entry["event"] for entry in logs if entry["log_level"] == "error"] == ["object_skipped"]


async def test_silence_is_measured() -> None:
    """`silent_s` is the time since the server's last event; bookmarks keep it low."""
    rig = Rig()
    assert rig.informer.silent_s is None
    async with rig.running():
        await rig.settle(500.0)
        assert rig.informer.silent_s is not None
        assert rig.informer.silent_s <= 60.0
