"""An agent in a JobSet that is divided into scopes: it follows its own scope, and logs when it has none."""

import asyncio

import pytest

from inplace.agent.settings.config import AgentConfig, ConfigError
from inplace.common.protocol.errors import RemoteProtocolError
from inplace.common.wire import names as wire
from tests.agent.rig import Rig
from tests.agent.scripted_server import Exchange, ScriptedServer, Step, ends, jobset, scoped, until_patched

ENV = {"NAMESPACE": "ns", "POD_NAME": "train-w-0-0", "JOBSET_NAME": "train"}


async def run(*script: Step, first: Step, restart_scope: str) -> tuple[Rig, ScriptedServer]:
    """Run an agent of a scope until it exits."""
    rig = Rig()
    async with ScriptedServer(lists=[first], watches=[script]) as server:
        await rig.run(server, restart_scope=restart_scope)
    return rig, server


@pytest.mark.asyncio
async def test_an_agent_follows_the_epochs_of_its_own_scope() -> None:
    """The agent announces its scope's S + 1 and lifts on it; other scopes' restarts and syncs change nothing."""
    rig, server = await run(
        scoped(a=(3, 3), b=(8, 7)),
        scoped(a=(4, 3), b=(8, 8)),
        scoped(a=(4, 3), b=(9, 8)),
        scoped(a=(4, 4), b=(9, 8)),
        first=scoped(a=(3, 3), b=(7, 7)),
        restart_scope="a",
    )
    assert rig.barrier.lifts == [4]
    (patch,) = server.requests("PATCH")
    assert b'"jobset.sigs.k8s.io/epoch":"4"' in patch.body
    assert [line["deprecated"] for line in rig.log.of("restarting_in_place")] == [4]


async def nothing_was_announced(exchange: Exchange) -> None:
    """Check that no PATCH has come so far."""
    assert exchange.server.requests("PATCH") == []


@pytest.mark.parametrize(
    ("restart_scope", "cure"),
    [
        ("", (jobset(0), until_patched(), jobset(1, 0), jobset(1, 1))),
        ("c", (scoped(c=(0, 0)), until_patched(), scoped(c=(1, 0)), scoped(c=(1, 1)))),
    ],
)
@pytest.mark.asyncio
async def test_an_agent_without_its_scope_announces_nothing_and_says_what_to_add(
    restart_scope: str, cure: tuple[Step, ...]
) -> None:
    """The agent waits; log and barrier name the missing field; when it is added, the agent goes on."""
    others = (scoped(a=(1, 0)), scoped(a=(1, 1)), nothing_was_announced)
    rig, server = await run(*others, *cure, first=scoped(a=(0, 0)), restart_scope=restart_scope)
    told = rig.log.of("restart_scope_unknown")
    assert len(told) == 3
    assert all("metadata.annotations['inplace.dev/restart-scope']" in line["message"] for line in told)
    assert any("saw the scopes a" in (report.problem or "") for report in rig.barrier.reports)
    assert len(server.requests("PATCH")) == 1
    assert rig.barrier.lifts == [1]


@pytest.mark.asyncio
async def test_an_agent_without_its_scope_lifts_when_restarts_in_place_are_off() -> None:
    """A bypass needs no epoch and so no scope."""
    rig = Rig()
    script = (scoped(a=(0, 0)), jobset(strategy="Recreate", scopes=[{"name": "a"}]), ends)
    async with ScriptedServer(lists=[scoped(a=(0, 0))], watches=[script]) as server:
        running = asyncio.create_task(rig.run(server))
        await server.until(lambda: len(server.watched) == 2)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert rig.barrier.lifts == [None]


def test_the_scope_comes_from_the_environment() -> None:
    """RESTART_SCOPE names the scope; empty, as without the annotation, it is the whole JobSet."""
    assert AgentConfig.from_env(ENV | {"RESTART_SCOPE": "pool-a"}).restart_scope == "pool-a"
    assert AgentConfig.from_env(ENV | {"RESTART_SCOPE": ""}) == AgentConfig.from_env(ENV)
    with pytest.raises(ConfigError, match="RESTART_SCOPE"):
        AgentConfig.from_env(ENV | {"RESTART_SCOPE": "Pool A"})


@pytest.mark.parametrize("garbage", ["a", [1], [{"syncedEpoch": 1}], {"name": "a"}, 7])
def test_garbage_for_scopes_is_the_controllers_fault(garbage: object) -> None:
    """A value that is not a list of named scopes raises RemoteProtocolError, never another error."""
    with pytest.raises(RemoteProtocolError, match="scopedEpochs: expected a list of scopes"):
        wire.status_of_scope({wire.SCOPED_EPOCHS: garbage}, "a")
