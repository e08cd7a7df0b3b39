"""Bugs in the protocol of both programs, and in the agent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from inplace.agent.agent import Agent
from inplace.agent.announce.announcer import Announcer
from inplace.agent.announce.jobset_events import is_of
from inplace.agent.announce.jobset_requests import list_request
from inplace.agent.worker_keeper import WorkerKeeper
from inplace.common.bare.record import replace
from inplace.common.protocol.agent import Accepted, AgentPhase
from inplace.common.protocol.agent import step as step_agent
from inplace.common.protocol.ledger import Ledger
from inplace.common.protocol.pod_view import PodLife
from inplace.controller.plan import epochs
from inplace.simulator.cluster.model_worker import ChildWorker
from tests.mistakes import agent, ledger
from tests.mistakes.mistake import instead_of
from tests.mutants.mutant import Area, Mutant


def _counts_pods(original: Callable[..., bool], self: Ledger, top: int) -> bool:
    return top > self.synced and 0 < self.shape.size <= self._pods_at[top]


def _keeps_the_terminating(original: Callable[..., None], self: Ledger, uid: str) -> None:
    record = self._records.get(uid)
    if record is not None and record.pod.life is PodLife.LEAVING:
        del self._records[uid]
        return
    original(self, uid)


async def _announces_by_hope(original: Callable[..., Coroutine[Any, Any, Any]], self: Announcer, epoch: int) -> Any:
    await original(self, epoch)
    return Accepted(epoch)


async def _never(original: Callable[..., Coroutine[Any, Any, None]], self: Agent) -> None:
    await asyncio.Event().wait()


async def _waits_without_end(
    original: Callable[..., Coroutine[Any, Any, None]], self: WorkerKeeper, grace_s: float
) -> None:
    await asyncio.Event().wait()


async def _at_once(original: Callable[..., Coroutine[Any, Any, None]], self: object) -> None:
    """Wait for nothing."""


PROTOCOL = (
    Mutant(
        "a restarted agent believes a stale watch cache",
        Area.PROTOCOL,
        (agent.EVERY_VIEW_IS_FRESH,),
        "Sieve (OSDI'22): stale states, 19 of its 46 reproduction plans",
        faults=(
            "api-stale-cache",
            "worker-exit",
        ),
    ),
    Mutant(
        "the barrier lifts as soon as the epoch is announced",
        Area.PROTOCOL,
        (agent.LIFTS_BEFORE_SYNC,),
    ),
    Mutant(
        "synced beats deprecated",
        Area.PROTOCOL,
        (agent.SYNCED_BEATS_DEPRECATED,),
    ),
    Mutant(
        "what the watch showed while the announcement was under way is forgotten",
        Area.PROTOCOL,
        (
            instead_of(
                step_agent,
                lambda original, state, event: (
                    (replace(state, phase=AgentPhase.WAITING), ())
                    if isinstance(event, Accepted) and state.phase is AgentPhase.ANNOUNCING
                    else original(state, event)
                ),
            ),
        ),
        faults=("api-slow-answer",),
    ),
    Mutant(
        "a slot with two Pods is counted by either of them",
        Area.PROTOCOL,
        (ledger.ONE_OF_TWO_PODS_COUNTS,),
        "JobSet #665: Pods of attempt N talk to Pods of attempt N - 1 that still run",
        faults=("pod-slow-to-die",),
    ),
    Mutant(
        "Pods are counted instead of slots",
        Area.PROTOCOL,
        (instead_of(Ledger._is_complete, _counts_pods),),
        "NVRx #348: five live agents where four fit closed the rendezvous",
        faults=("pod-slow-to-die",),
    ),
    Mutant(
        "a terminating Pod is taken for gone",
        Area.PROTOCOL,
        (ledger.LEAVING_IS_GONE,),
        "JobSet #684, #686: the next attempt starts while the last one still terminates",
        faults=("pod-slow-to-die",),
    ),
    Mutant(
        "Pods that a resize left over hold no barrier up",
        Area.PROTOCOL,
        (ledger.GHOSTS_ARE_IGNORED,),
        faults=(
            "resize",
            "term-ignored",
        ),
    ),
    Mutant(
        "a Pod that is gone stays counted when it was terminating",
        Area.PROTOCOL,
        (instead_of(Ledger.forget, _keeps_the_terminating),),
        "JobSet #576: a Pod stuck in Terminating blocks the recovery for ever",
        faults=("pod-force-deleted",),
    ),
    Mutant(
        "the exit of the last epoch's container counts against this one",
        Area.PROTOCOL,
        (ledger.OLD_EXIT_COUNTS, ledger.NEVER_SEEN_RUNNING_COUNTS),
        faults=(
            "worker-exit",
            "partition-kubelet",
        ),
    ),
    Mutant(
        "a worker that died stays on the list after the next sync",
        Area.PROTOCOL,
        (ledger.THE_DEAD_ARE_REMEMBERED,),
    ),
    Mutant(
        "an epoch far ahead of the group is believed",
        Area.PROTOCOL,
        (ledger.ANY_EPOCH_IS_BELIEVED,),
        faults=("annotation-tampered",),
    ),
    Mutant(
        "a supervisor announces while its worker still runs",
        Area.PROTOCOL,
        (agent.ANNOUNCES_BESIDE_ITS_WORKER,),
    ),
    Mutant(
        "a Pod that completed is waited for at the next barrier",
        Area.PROTOCOL,
        (
            ledger.COMPLETED_JOBS_STAY,
            instead_of(epochs._cannot_restart, lambda original, draft, job: False),
        ),
        faults=("worker-completes",),
    ),
)

AGENT = (
    Mutant(
        "a lost reply is taken for a success, and nothing is announced again",
        Area.AGENT,
        (instead_of(Announcer.announce, _announces_by_hope), instead_of(Agent._remind, _never)),
        faults=("api-timeout-before-commit",),
    ),
    Mutant(
        "an announcement that was refused is not sent again",
        Area.AGENT,
        (agent.NOT_ANNOUNCED_AGAIN,),
    ),
    Mutant(
        "the agent's consistent read is a cheap one",
        Area.AGENT,
        (
            instead_of(
                list_request,
                lambda original, config, *, as_table, consistent: original(config, as_table=as_table, consistent=False),
            ),
        ),
        faults=(
            "api-stale-cache",
            "pod-deleted",
        ),
    ),
    Mutant(
        "an agent takes any JobSet of the name for its own",
        Area.AGENT,
        (instead_of(is_of, lambda original, seen, name, uid: seen.name == name),),
        faults=(
            "jobset-recreated",
            "agents-crash",
            "pod-slow-to-die",
        ),
    ),
    Mutant(
        "a worker that ignores SIGTERM is waited for without end",
        Area.AGENT,
        (instead_of(WorkerKeeper._kill_after, _waits_without_end),),
        "JobSet #928: no restart begins before the failed Job's last Pod has ended",
        faults=("term-ignored",),
    ),
    Mutant(
        "a supervisor announces while processes that its worker left still run",
        Area.AGENT,
        (instead_of(ChildWorker.gone, _at_once),),
    ),
)
