"""The prelude changes only when a request leaves: every case runs with and without it."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
import trustme

from inplace.agent.report.metrics import AgentMetrics
from inplace.agent.report.phases import RestartPhases
from inplace.agent.settings.config import AgentConfig
from inplace.agent.settings.epoch_file import EpochFile
from inplace.agent.settings.herd import LATE_S, Herd
from inplace.agent.start.prelude import HEAD_START_S_MAX, head_start
from inplace.common.bare.record import replace
from inplace.common.kube.http.credentials import Credentials
from inplace.common.kube.http.early_connection import EarlyConnection
from tests.agent.process import server_tls
from tests.agent.rig import CONFIG, Rig
from tests.agent.scripted_server import (
    ONE_EPOCH,
    SYNC_THEN_RESTART,
    Exchange,
    ScriptedServer,
    Step,
    accept_patch,
    answers,
    hangs_up,
    in_turn,
    jobset,
    lists_nothing,
    refuses,
    resets,
    scoped,
    shouts,
    table,
    until_patched,
)

pytestmark = pytest.mark.asyncio
FAILED_S_MAX = 30.0  # a first PATCH fails within milliseconds


async def cut(exchange: Exchange) -> None:
    """Close in the middle of the answer."""
    await exchange.raw(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf")
    exchange.writer.close()


async def last_words(exchange: Exchange) -> None:
    """List the JobSet and close the connection."""
    await exchange.answer(200, table(["train", 0, 0, None, None, "InPlaceRestart", None, None, "uid-1"], 10), CLOSE)
    exchange.writer.close()


async def namesakes(exchange: Exchange) -> None:
    """List another JobSet beside ours, like a proxy that drops the selector."""
    rows = table(["other", 7, 7, None, None, "InPlaceRestart", None, None, "uid-7"], 10)
    rows["rows"] += table(["train", 0, 0, None, None, "InPlaceRestart", None, None, "uid-1"], 10)["rows"]
    await exchange.answer(200, rows)


UPSTREAMS_COLUMNS = answers(200, table(["train", "Running"], 9, columns=["Name", "TerminalState"]))  # not ours
CLOSE = {"connection": "close"}


@dataclass(frozen=True)
class Case:
    """The server's answers to each list and each patch, in order; later requests are answered normally."""

    lists: Sequence[Step] = (jobset(0),)
    patches: Sequence[Step] = ()
    watch: Sequence[Step] = SYNC_THEN_RESTART
    config: dict[str, Any] = field(default_factory=dict)


CASES = {
    "all is well": Case(),
    "a cheap view": Case(config={"previous_epoch": 1}, lists=[jobset(1)], watch=[jobset(2, 1), jobset(2, 2)]),
    "a stale view": Case(config={"previous_epoch": 1}, lists=[jobset(0), jobset(0)]),
    "in-place restart is off": Case(lists=[jobset(strategy="Recreate")], watch=[jobset(1, 0), resets]),
    "no epoch is left": Case(lists=[jobset(2**31 - 1)]),
    "a scope": Case(
        config={"restart_scope": "a"},
        lists=[scoped(a=(1, 1), b=(7, 7))],
        watch=[scoped(a=(2, 1), b=(7, 7)), scoped(a=(2, 2), b=(7, 7))],
    ),
    "a scope in whole objects": Case(
        config={"restart_scope": "a", "prefer_table": False},
        lists=[scoped(a=(1, 1), b=(7, 7))],
        watch=[scoped(a=(2, 1), b=(7, 7)), scoped(a=(2, 2), b=(7, 7))],
    ),
    "no scope is named": Case(lists=[scoped(a=(0, 0))], watch=[scoped(a=(1, 0)), resets]),
    "another scope is named": Case(
        config={"restart_scope": "b"}, lists=[scoped(a=(0, 0))], watch=[scoped(a=(1, 0)), resets]
    ),
    "no JobSet yet": Case(lists=[lists_nothing], watch=[jobset(0, kind="ADDED"), until_patched(), *SYNC_THEN_RESTART]),
    "another JobSet's uid": Case(config={"jobset_uid": "uid-0"}, watch=[jobset(0, uid="uid-0"), until_patched()]),
    "namesakes": Case(lists=[namesakes]),
    "a malformed status": Case(lists=[jobset("1")], watch=ONE_EPOCH),
    "upstream's columns": Case(lists=[UPSTREAMS_COLUMNS, jobset(0)]),
    "whole objects": Case(config={"prefer_table": False}),
    "the server closes after the list": Case(lists=[last_words]),
    **{
        f"the list is refused with {code}": Case(lists=[refuses(code, reason), jobset(0)])
        for code, reason in [(401, "Unauthorized"), (403, "Forbidden"), (404, "NotFound"), (410, "Expired")]
    },
    "the list is throttled": Case(lists=[refuses(429, "TooManyRequests", retry_after="2"), jobset(0)]),
    "the list fails": Case(lists=[refuses(500), refuses(503), jobset(0)]),
    "the list is garbage": Case(lists=[answers(200, b"<html>"), jobset(0)]),
    "no HTTP": Case(lists=[shouts, jobset(0)]),
    "no answer to the list": Case(lists=[hangs_up, jobset(0)]),
    "half an answer to the list": Case(lists=[cut, jobset(0)]),
    "the list is reset": Case(lists=[resets, jobset(0)]),
    **{
        f"the patch is refused with {code}": Case(patches=[refuses(code, reason)])
        for code, reason in [(401, "Unauthorized"), (404, "NotFound"), (409, "Conflict"), (422, "Invalid")]
    },
    "the patch is throttled": Case(patches=[refuses(429, "TooManyRequests", retry_after="2")]),
    "the patch fails twice": Case(patches=[refuses(500), refuses(503)]),
    "the patch is reset": Case(patches=[resets]),
    "no answer to the patch": Case(patches=[hangs_up]),
    "half an answer to the patch": Case(patches=[cut]),
}


async def outcome(case: Case, *, with_head_start: bool) -> dict[str, Any]:
    """Run the agent until it exits or waits for ever; return its requests, log, exit code and connections."""
    ended = until_patched(len(case.patches) + 1) if case.patches else until_patched(0)
    rig, answer = Rig(), in_turn(*case.patches)
    async with ScriptedServer(lists=case.lists, watches=[(ended, *case.watch)], answer=answer) as server:
        running = asyncio.create_task(rig.run(server, with_head_start=with_head_start, **case.config))
        second = asyncio.create_task(server.until(lambda: len(server.watched) == 2))
        await asyncio.wait((running, second), return_when=asyncio.FIRST_COMPLETED)
        for task in (running, second):
            task.cancel()
        code, _ = await asyncio.gather(running, second, return_exceptions=True)
    return {
        "exit": code if isinstance(code, int) else "running",
        "lifts": rig.barrier.lifts,
        "requests": [(request.method, request.path, request.body) for request in server.received],
        "versions": [request.query.get("resourceVersion") for request in server.listed],
        "counted": rig.metrics.requests,
        "log": [event for _, event, _ in rig.log.lines],
        "connections": server.connections,
    }


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name == "another JobSet's uid" else name for name in CASES]
)
async def test_the_head_start_changes_nothing_but_the_time(name: str) -> None:
    """Requests, outcomes, log, exit code and connections are the same with and without the prelude."""
    with_it = await outcome(CASES[name], with_head_start=True)
    assert with_it == await outcome(CASES[name], with_head_start=False)
    if not CASES[name].patches:
        assert len([request for request in with_it["requests"] if request[0] == "PATCH"]) <= 1


def start_ahead(to: Credentials, config: AgentConfig = CONFIG) -> tuple[EarlyConnection | None, bool]:
    """Run the head start alone."""
    return head_start(config, to, to.ssl_context(), EpochFile(), RestartPhases(AgentMetrics(), now_s=monotonic))


async def test_the_announcement_leaves_before_anything_of_the_agent_runs() -> None:
    """When the prelude returns, the list is answered and the patch is sent; nothing waits for the patch's answer."""
    answering = asyncio.Event()

    async def answer(exchange: Exchange) -> None:
        await answering.wait()
        await accept_patch(exchange)

    async with ScriptedServer(lists=[jobset(0)], answer=answer) as server:
        ahead, _ = await asyncio.to_thread(start_ahead, Credentials("127.0.0.1", server.port, tls=False))
        await server.until(lambda: len(server.received) == 2)
        assert [request.method for request in server.received] == ["GET", "PATCH"]
        assert ahead is not None
        assert ahead.in_flight is not None
        assert ahead.in_flight.method == "PATCH"
        ahead.close()
        answering.set()


async def test_a_slow_list_is_waited_for_by_the_agent() -> None:
    """After its bound the prelude hands over the connection, and the list is not sent again."""
    released = asyncio.Event()

    async def slow(exchange: Exchange) -> None:
        await released.wait()
        await jobset(0)(exchange)

    async with ScriptedServer(lists=[slow], watches=[SYNC_THEN_RESTART]) as server:
        running = asyncio.create_task(Rig().run(server, with_head_start=True))
        asyncio.get_running_loop().call_later(HEAD_START_S_MAX * 1.2, released.set)
        assert await running == 88
    assert [request.method for request in server.received] == ["GET", "PATCH", "GET"]
    assert server.connections == 1


async def test_a_server_that_never_speaks_tls_holds_nobody() -> None:
    """When a server accepts and stays silent, the prelude ends by its bound and has sent nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        to = Credentials("127.0.0.1", silent.getsockname()[1])
        began_s = asyncio.get_running_loop().time()
        assert await asyncio.to_thread(start_ahead, to) == (None, False)
        assert asyncio.get_running_loop().time() - began_s < HEAD_START_S_MAX + 1


@pytest.mark.parametrize(("herd", "is_put_off"), [(Herd(), False), (Herd(1_000, 500), True)])
async def test_a_large_group_keeps_a_late_list_and_puts_the_announcement_off(herd: Herd, is_put_off: bool) -> None:
    """The head start ends with the list's answer and its connection; a group without slots announces all the same."""

    async def late(exchange: Exchange) -> None:
        await asyncio.sleep(10 * LATE_S)
        await jobset(0)(exchange)

    config = replace(CONFIG, herd=herd, start_slot_s=herd.start_slot_s)
    async with ScriptedServer(lists=[late]) as server:
        to = Credentials("127.0.0.1", server.port, tls=False)
        ahead, was_late = await asyncio.to_thread(start_ahead, to, config)
        assert ahead is not None
        assert was_late is is_put_off
        assert [request.method for request, _ in ahead.outcomes] == ["GET"]
        assert (ahead.in_flight is None) is is_put_off
        ahead.close()


async def test_a_name_gets_no_head_start() -> None:
    """A server given by host name gets no prelude: a look-up cannot be bounded without a thread."""
    to = Credentials("localhost", 1, tls=False)
    assert start_ahead(to) == (None, False)


async def test_a_wrong_certificate_gets_neither_request_nor_token() -> None:
    """Over TLS the prelude trusts the same CA as the agent."""
    ours, theirs = trustme.CA(), trustme.CA()
    async with ScriptedServer(lists=[jobset(0)], tls=server_tls(theirs)) as server:
        to = Credentials("127.0.0.1", server.port, ca_pem=ours.cert_pem.bytes().decode(), token="secret")
        assert await asyncio.to_thread(start_ahead, to) == (None, False)
    assert server.received == []


async def test_a_connection_over_tls_is_handed_over() -> None:
    """List, patch and watch use one TLS connection, which the prelude opens and the event loop takes over."""
    authority = trustme.CA()
    rig = Rig()
    async with ScriptedServer(lists=[jobset(0)], watches=[SYNC_THEN_RESTART], tls=server_tls(authority)) as server:
        to = Credentials("127.0.0.1", server.port, ca_pem=authority.cert_pem.bytes().decode(), token="secret")
        assert await rig.run(server, to, with_head_start=True) == 88
    assert [json.loads(request.body or "{}").get("metadata", {}).get("uid") for request in server.received] == [
        None,
        "pod-uid",
        None,
    ]
    assert server.connections == 1
    assert rig.barrier.lifts == [1]


async def test_a_token_that_vanishes_between_list_and_patch_is_waited_for(tmp_path: Path) -> None:
    """The list's answer is kept, and the announcement is sent once, when the token is there again."""
    token = tmp_path / "token"
    token.write_text("t")

    async def takes_the_token(exchange: Exchange) -> None:
        token.unlink()
        await jobset(0)(exchange)

    authority = trustme.CA()
    rig = Rig()
    async with ScriptedServer(
        lists=[takes_the_token], watches=[SYNC_THEN_RESTART], tls=server_tls(authority)
    ) as server:
        ca = authority.cert_pem.bytes().decode()
        to = Credentials("127.0.0.1", server.port, ca_pem=ca, token_file=str(token))
        running = asyncio.create_task(rig.run(server, to, with_head_start=True))
        async with asyncio.timeout(FAILED_S_MAX):
            while not rig.log.of("announcement_failed"):  # noqa: ASYNC110 - the log is in memory
                await asyncio.sleep(0.001)
        token.write_text("t")
        assert await running == 88
    assert len(server.listed) == 1
    assert len(server.requests("PATCH")) == 1
