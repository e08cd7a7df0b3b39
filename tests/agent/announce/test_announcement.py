"""The reaction to each way in which an announcement can fail."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from inplace.agent.announce.retry_budget import DENIED_BASE_S
from tests.agent.rig import Rig
from tests.agent.scripted_server import Exchange, ScriptedServer, Step, in_turn, jobset, refuses, resets, until_patched

pytestmark = pytest.mark.asyncio


async def run(*failures: Step, views: Sequence[Step] = ()) -> Rig:
    """Run an agent whose first announcements end as `failures` say and whose next one is accepted."""
    rig = Rig()
    finish = (jobset(0), *views, until_patched(len(failures) + 1), jobset(1, 0), jobset(1, 1))
    async with ScriptedServer(watches=[finish], answer=in_turn(*failures)) as server:
        assert await rig.run(server) == 88
    assert len({patch.body for patch in server.requests("PATCH")}) == 1
    assert len(server.requests("PATCH")) == len(failures) + 1
    assert rig.barrier.lifts == [1]
    return rig


async def test_a_throttled_announcement_is_sent_again_after_retry_after() -> None:
    """After a 429 the agent sends the same bytes again, AFTER the server's Retry-After."""
    rig = await run(refuses(429, "TooManyRequests", retry_after="3"))
    assert 3 <= rig.clock.slept_s[0] <= 3 + 3
    assert rig.metrics.requests["patch", "busy"] == 1


async def test_a_lost_reply_is_sent_again() -> None:
    """A connection that breaks before the reply leaves the outcome unknown; sending again is safe."""
    rig = await run(resets, resets)
    assert rig.metrics.requests["patch", "broken"] == 2


async def test_a_failing_server_is_asked_again() -> None:
    """After a 5xx the agent sends again, with backoff."""
    rig = await run(refuses(500), refuses(503), refuses(504))
    assert rig.metrics.requests["patch", "busy"] == 3


async def test_a_proxy_s_page_or_redirect_is_no_acceptance() -> None:
    """After a login page with status 200, or a redirect, the announcement is sent again, and the log says why."""
    page = b"<title>Sign in</title>"
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: %d\r\n\r\n" % len(page)
    redirect = b"HTTP/1.1 302 Found\r\nlocation: https://login\r\ncontent-length: 0\r\n\r\n"
    rig = await run(answers(head + page), answers(redirect))
    assert rig.metrics.requests["patch", "garbled"] + rig.metrics.requests["patch", "broken"] == 2
    told = [entry["message"] for entry in rig.log.of("announcement_failed")]
    assert "text/html, 'Sign in'" in told[0]
    assert "to 'https://login'" in told[1]


def answers(whole: bytes) -> Step:
    """Answer with these bytes."""

    async def step(exchange: Exchange) -> None:
        await exchange.raw(whole)

    return step


async def test_refused_credentials_are_retried() -> None:
    """After a 401 the agent sends again, with the token that is on disk by then."""
    rig = await run(refuses(401, "Unauthorized"))
    assert "token" in rig.log.of("announcement_failed")[0]["cure"]


async def test_a_forbidden_announcement_names_the_permission() -> None:
    """403: the log names verb, resource and namespace, and the retry is slow."""
    rig = await run(refuses(403, "Forbidden"))
    assert "patch pods in namespace ns" in rig.log.of("announcement_failed")[0]["cure"]
    assert rig.clock.slept_s[0] <= DENIED_BASE_S
    assert any("forbidden" in (report.problem or "") for report in rig.barrier.reports)
    assert rig.barrier.reports[-1].problem is None


@pytest.mark.parametrize(("code", "reason"), [(404, "NotFound"), (409, "Conflict"), (422, "Invalid")])
async def test_a_pod_that_is_gone_is_named(code: int, reason: str) -> None:
    """After a 404, or another uid under our Pod's name, the log says that the Pod is gone, and the retry is slow."""
    rig = await run(refuses(code, reason))
    assert "Pod" in rig.log.of("announcement_failed")[0]["cure"]


async def test_a_refused_announcement_of_a_deprecated_epoch_is_not_repeated() -> None:
    """When the epoch is deprecated while its announcement fails, the Pod restarts without announcing it again."""
    rig = Rig()
    deprecated = asyncio.Event()

    async def answer(exchange: Exchange) -> None:
        await deprecated.wait()
        await refuses(500)(exchange)

    async def shown(exchange: Exchange) -> None:
        deprecated.set()

    script = (jobset(0), until_patched(), jobset(0, 1), shown)
    async with ScriptedServer(watches=[script], answer=answer) as server:
        running = asyncio.create_task(rig.run(server))
        assert await running == 88
    assert rig.barrier.lifts == []
