"""
Run one agent in one event loop: its parts, its signals, its end.

Loaded after the announcement has left, or after it had to be put off. From here on only the answer to it is urgent.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import ssl
import sys
from dataclasses import dataclass
from random import Random
from typing import Final

from inplace.agent.barrier import HttpBarrier, renderer
from inplace.agent.config import AgentConfig
from inplace.agent.epoch_file import EpochMemory
from inplace.agent.log import LazyLog
from inplace.agent.metrics import AgentMetrics
from inplace.agent.phases import RestartPhases, boot_s, process_started_s
from inplace.agent.runtime import Agent
from inplace.common.kube.ahead import Ahead
from inplace.common.kube.clock import LoopClock
from inplace.common.kube.credentials import Credentials
from inplace.common.kube.http import Request
from inplace.common.kube.http1 import Http1Transport
from inplace.common.record import replace

LOG_LOAD_S: Final = 1.0  # log lines wait at most this long when there is nothing to announce
STOP_S_MAX: Final = 1.0  # from a signal to the exit; kubelet's shortest grace period is 2 s
SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


@dataclass(slots=True, kw_only=True)
class Session:
    """Run one agent.

    Args:
        context: TLS settings, None for plain HTTP.
        listener: the barrier's socket, bound.
        ahead: the requests that the prelude sent, with their answers.
    """

    config: AgentConfig
    credentials: Credentials
    context: ssl.SSLContext | None
    log: LazyLog
    memory: EpochMemory
    metrics: AgentMetrics
    phases: RestartPhases
    listener: socket.socket
    ahead: Ahead | None

    def run(self) -> int:
        """Run until the agent ends or a signal ends it; return the process's exit code."""
        return asyncio.run(self._run())

    async def _run(self) -> int:
        received = _stop_on_signals()
        try:
            return await self._run_agent()
        except asyncio.CancelledError:
            if not received:
                raise
            self.log.info("signalled", signal=received[0].name, then=f"exit {128 + received[0]}")
            return 128 + received[0]

    async def _run_agent(self) -> int:
        """Build the parts and run them until the agent ends; return its exit code."""
        loop = asyncio.get_running_loop()

        def on_sent(request: Request) -> None:
            if request.method == "PATCH":  # the announcement is in the kernel's hands; its answer takes a while
                loop.call_soon(self.log.load)

        config = _with_what_is_left_of_the_slot(self.config)
        # A slot is time to load everything in; without one the announcement goes first.
        loop.call_later(0.0 if config.start_slot_s > 0 else LOG_LOAD_S, self.log.load)
        clock = LoopClock()
        transport = Http1Transport(
            self.credentials, clock=clock, on_sent=on_sent, context=self.context, ahead=self.ahead
        )
        barrier = HttpBarrier(
            config,
            clock=clock,
            render_metrics=renderer(self.metrics, self.log, clock),
            listener=self.listener,
        )
        agent = Agent(
            config,
            transport=transport,
            clock=clock,
            rng=Random(),
            barrier=barrier,
            log=self.log,
            metrics=self.metrics,
            memory=self.memory,
            phases=self.phases,
        )
        try:
            return await agent.run()
        finally:
            self.phases.leave()
            await transport.close()


def _with_what_is_left_of_the_slot(config: AgentConfig) -> AgentConfig:
    """Count the slot from the process's first moment: the imports since then used a part of it."""
    if config.start_slot_s <= 0:
        return config
    now_s = boot_s()
    return replace(config, start_slot_s=max(0.0, config.start_slot_s - (now_s - process_started_s(now_s))))


def _stop_on_signals() -> list[signal.Signals]:
    """Cancel the current task when a signal comes; return the list that will hold it."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    received: list[signal.Signals] = []

    def stop(number: signal.Signals) -> None:
        received.append(number)
        task.cancel()
        # Whatever hangs (a name look-up in a thread) may not hold us.
        loop.call_later(STOP_S_MAX, _leave, 128 + number)

    for number in SIGNALS:
        loop.add_signal_handler(number, stop, number)
    return received


def _leave(code: int) -> None:
    sys.stderr.flush()
    os._exit(code)
