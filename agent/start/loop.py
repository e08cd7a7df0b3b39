"""
Run an agent in an event loop: its parts, its signals, its end.

This module is loaded after the announcement has left, or after that had to be put off. From then on only the
answer to it is urgent.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Final

from inplace.agent.barrier.http import Barrier, HttpBarrier, renderer
from inplace.agent.deps import AgentDeps
from inplace.agent.progress.kept_tails import KeptTails
from inplace.agent.progress.stall_watch import StallWatch
from inplace.agent.report.line_limit import LimitedLog
from inplace.agent.report.line_writer import STDERR
from inplace.agent.report.phases import boot_s, process_started_s
from inplace.agent.settings.address import tail_folder
from inplace.agent.settings.config import AgentConfig
from inplace.agent.start.shell import SIGNALS, Shell, SignalledError
from inplace.agent.worker.prctl import keep_to_itself
from inplace.common.bare.record import replace
from inplace.common.kube.clock import LoopClock
from inplace.common.kube.http.early_connection import EarlyConnection
from inplace.common.kube.http.http1 import Http1Transport
from inplace.common.kube.http.request import Request

if TYPE_CHECKING:
    from inplace.agent.agent import Agent
    from inplace.agent.report.log import Log
    from inplace.agent.worker.save_requests import SaveRequests

LOG_LOAD_S: Final = 1.0  # log lines wait at most this long when there is nothing to announce
STOP_S_MAX: Final = 1.0  # from the exit code to the exit; kubelet's shortest grace period is 2 s


def run_loop(
    shell: Shell,
    make: Callable[[AgentConfig, AgentDeps], Agent],
    *,
    listener: socket.socket | None,
    ahead: EarlyConnection | None = None,
    unwatched: str = "",
) -> int:
    """Run an agent until it ends; return the process's exit code.

    Args:
        shell: the process so far.
        make: makes the agent, in the loop.
        listener: the barrier's socket, bound; None for a barrier that nobody asks.
        ahead: the requests that were sent before, with their answers.
        unwatched: why no worker can be watched for stalls here; "" if one can.

    Raises:
        SignalledError: a signal came before the loop could take it.
    """
    if shell.signals:  # and what that raised was lost: Python drops it in a destructor, of which imports have many
        raise SignalledError(shell.signals[0])
    keep_to_itself(shell.log)  # BEFORE the lift; no worker of this Pod runs yet
    return asyncio.run(_run(shell, make, listener, ahead, unwatched))


async def _run(
    shell: Shell,
    make: Callable[[AgentConfig, AgentDeps], Agent],
    listener: socket.socket | None,
    ahead: EarlyConnection | None,
    unwatched: str,
) -> int:
    loop, log = asyncio.get_running_loop(), shell.log

    def on_sent(request: Request) -> None:
        if request.method == "PATCH":  # the announcement is in the kernel's hands; its answer takes a while
            loop.call_soon(log.load)

    config = _with_what_is_left_of_the_slot(shell.config)
    # A slot is time to load everything in; without one the announcement goes first.
    loop.call_later(0.0 if config.start_slot_s > 0 else LOG_LOAD_S, log.load)
    clock = LoopClock()
    peers = LimitedLog(log, clock.monotonic_s)  # for what other processes of this Pod cause
    transport = Http1Transport(shell.credentials, clock=clock, on_sent=on_sent, context=shell.context, ahead=ahead)
    barrier = Barrier()
    if listener is not None:
        render_metrics = renderer(shell.metrics, log, clock)
        barrier = HttpBarrier(config, listener=listener, clock=clock, render_metrics=render_metrics)
    saves: SaveRequests | None = None
    if config.save_within_s > 0:
        from inplace.agent.settings.address import make_progress_dir
        from inplace.agent.worker.save_requests import SaveRequests

        make_progress_dir(config.save_file.rpartition("/")[0])
        saves = SaveRequests(config.save_file, config.save_within_s, log)
    agent = make(
        config,
        AgentDeps(
            transport=transport,
            clock=clock,
            rng=Random(),
            barrier=barrier,
            stalls=StallWatch(config, clock=clock, log=peers, problem=unwatched),
            tails=_tails_of(config, log),
            saves=saves,
            log=log,
            metrics=shell.metrics,
            memory=shell.memory,
            phases=shell.phases,
            now_s=boot_s,
            on_end=lambda code: loop.call_later(STOP_S_MAX, _leave, code),  # what hangs then may not hold us
        ),
    )
    if isinstance(barrier, HttpBarrier) and config.link_file:
        barrier.runs = agent.keeper.runs
    for number in SIGNALS:
        loop.add_signal_handler(number, agent.keeper.terminate, number)
    try:
        return await agent.run()
    finally:
        shell.phases.leave()
        await transport.close()


def _with_what_is_left_of_the_slot(config: AgentConfig) -> AgentConfig:
    """Count the slot from the process's first moment: the imports since then used a part of it."""
    if config.start_slot_s <= 0:
        return config
    now_s = boot_s()
    return replace(config, start_slot_s=max(0.0, config.start_slot_s - (now_s - process_started_s(now_s))))


def _tails_of(config: AgentConfig, log: Log) -> KeptTails | None:
    """Return what keeps the tails of the worker's runs; None without a folder that outlives the containers."""
    folder, memory = tail_folder(config.link_file, config.epoch_file), config.epoch_file.rpartition("/")[0]
    return KeptTails(folder, f"{memory}/tails", log, tells_each=bool(config.link_file)) if folder and memory else None


def _leave(code: int) -> None:
    STDERR.flush()
    os._exit(code)
