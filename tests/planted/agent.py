"""Bugs in the agent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from inplace.agent.agent import Agent
from inplace.agent.announce.announcer import Announcer
from inplace.agent.announce.jobset_events import is_of
from inplace.agent.announce.jobset_requests import list_request
from inplace.agent.worker_keeper import WorkerKeeper
from inplace.common.protocol.agent import Accepted
from inplace.common.protocol.resume import NOTHING, Saved
from inplace.simulator.cluster.model_worker import ChildWorker
from tests.planted.bug import Area, hunted
from tests.planted.mistake import instead_of


async def _announces_by_hope(
    original: Callable[..., Coroutine[Any, Any, Any]], self: Announcer, epoch: int, saved: Saved = NOTHING
) -> Any:
    await original(self, epoch, saved)
    return Accepted(epoch)


async def _never(original: Callable[..., Coroutine[Any, Any, None]], self: Agent) -> None:
    await asyncio.Event().wait()


async def _waits_without_end(
    original: Callable[..., Coroutine[Any, Any, None]], self: WorkerKeeper, grace_s: float
) -> None:
    await asyncio.Event().wait()


async def _at_once(original: Callable[..., Coroutine[Any, Any, None]], self: object) -> None:
    """Wait for nothing."""


AGENT = (
    hunted(
        "a lost reply is taken for a success, and nothing is announced again",
        Area.AGENT,
        (instead_of(Announcer.announce, _announces_by_hope), instead_of(Agent._remind, _never)),
        faults=("api-timeout-before-commit",),
    ),
    hunted(
        "the agent's consistent read is a cheap one",
        Area.AGENT,
        (
            instead_of(
                list_request,
                lambda original, config, *, as_table, consistent: original(config, as_table=as_table, consistent=False),
            ),
        ),
        faults=("api-stale-cache", "pod-deleted"),
    ),
    hunted(
        "an agent takes any JobSet of the name for its own",
        Area.AGENT,
        (instead_of(is_of, lambda original, seen, name, uid: seen.name == name),),
        faults=("jobset-recreated", "agents-crash", "pod-slow-to-die"),
    ),
    hunted(
        "a worker that ignores SIGTERM is waited for without end",
        Area.AGENT,
        (instead_of(WorkerKeeper._kill_after, _waits_without_end),),
        "JobSet #928: no restart begins before the failed Job's last Pod has ended",
        faults=("term-ignored",),
    ),
    hunted(
        "a supervisor announces while processes that its worker left still run",
        Area.AGENT,
        (instead_of(ChildWorker.gone, _at_once),),
    ),
)
