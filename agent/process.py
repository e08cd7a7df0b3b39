"""
Build the agent's parts from the environment, run them in one loop, and turn every ending into an exit code.

Order matters for the start: read settings, bind the barrier, open the watch and (in the same breath) the
connection for the announcement. Everything else, structlog first, is imported once the announcement has left.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Final

from agent.barrier import HttpBarrier
from agent.config import AgentConfig, ConfigError
from agent.epoch_file import EpochFile
from agent.exit_code import ExitCode
from agent.log import LazyLog
from agent.metrics import AgentMetrics, render
from agent.runtime import Agent
from common.kube.clock import LoopClock
from common.kube.credentials import Credentials, CredentialsError, credentials_from_env
from common.kube.http import Request
from common.kube.http1 import Http1Transport

LOG_LOAD_S: Final = 1.0  # log lines wait at most this long when there is nothing to announce
STOP_S_MAX: Final = 1.0  # from a signal to the exit; kubelet's shortest grace period is 2 s
WARM_TIMEOUT_S: Final = 10.0
SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


def run_process(arguments: Sequence[str], env: Mapping[str, str]) -> int:
    """Run the agent; return the process's exit code."""
    log = LazyLog()
    try:
        config, credentials = read_settings(arguments, env)
        log = LazyLog(config.log_format, config.log_level)
        for warning in config.warnings:
            log.warning("setting_ignored", message=warning)
        config = with_kept_epoch(config, log)
        return asyncio.run(_run(config, credentials, log))
    except ConfigError as error:
        for problem in error.problems:
            log.error("setting_refused", message=problem, then=f"exit {ExitCode.CONFIG.value}; nothing was sent")
        return ExitCode.CONFIG
    except Exception as error:  # noqa: BLE001 - the process's boundary: kubelet wants a code
        import traceback

        log.error("bug", message=repr(error), trace=traceback.format_exc())
        return ExitCode.BUG
    finally:
        log.load()


def read_settings(arguments: Sequence[str], env: Mapping[str, str]) -> tuple[AgentConfig, Credentials]:
    """Read everything that comes from outside.

    Raises:
        ConfigError: all that is wrong with it.
    """
    problems: list[str] = []
    if arguments:
        problems.append(f"arguments: expected none (settings are environment variables), saw {list(arguments)!r}")
    try:
        config = AgentConfig.from_env(env)
    except ConfigError as error:
        problems.extend(error.problems)
    try:
        credentials = credentials_from_env(env)
    except CredentialsError as error:
        problems.append(str(error))
    if problems:
        raise ConfigError(tuple(problems))
    return config, credentials


def with_kept_epoch(config: AgentConfig, log: LazyLog) -> AgentConfig:
    """Let the epoch in EPOCH_FILE correct an older PREVIOUS_EPOCH; a garbled file makes it unknown."""
    if not config.epoch_file:
        return config
    kept, problem = EpochFile(config.epoch_file).recall()
    if problem is not None:
        log.warning("epoch_not_recalled", message=problem, then="a consistent view is taken")
        return replace(config, previous_epoch=None)
    known = [epoch for epoch in (config.previous_epoch, kept) if epoch is not None]
    return replace(config, previous_epoch=max(known, default=None))


async def _run(config: AgentConfig, credentials: Credentials, log: LazyLog) -> int:
    """Run one agent in this loop, until it ends or a signal ends it."""
    received = _stop_on_signals()
    try:
        return await _run_agent(config, credentials, log)
    except asyncio.CancelledError:
        if not received:
            raise
        log.info("signalled", signal=received[0].name, then=f"exit {128 + received[0]}")
        return 128 + received[0]


async def _run_agent(config: AgentConfig, credentials: Credentials, log: LazyLog) -> int:
    """Build the parts and run them until the agent ends; return its exit code."""
    loop = asyncio.get_running_loop()

    def on_sent(request: Request) -> None:
        if request.method == "PATCH":  # the announcement is in the kernel's hands; its answer takes a while
            loop.call_soon(log.load)

    loop.call_later(LOG_LOAD_S, log.load)
    clock, metrics = LoopClock(), AgentMetrics()
    try:
        transport = Http1Transport(credentials, clock=clock, on_sent=on_sent)
    except CredentialsError as error:
        raise ConfigError((str(error),)) from error
    barrier = HttpBarrier(config, clock=clock, render_metrics=lambda: render(metrics))
    agent = Agent(
        config,
        transport=transport,
        clock=clock,
        rng=Random(),
        barrier=barrier,
        log=log,
        metrics=metrics,
        memory=EpochFile(config.epoch_file) if config.epoch_file else None,
    )
    try:
        async with asyncio.TaskGroup() as group:
            running = group.create_task(agent.run())
            if not config.start_jitter_s:  # the jitter is there to spread handshakes too
                warming = group.create_task(transport.warm(timeout_s=WARM_TIMEOUT_S))
                running.add_done_callback(lambda _: warming.cancel())
        return running.result()
    finally:
        await transport.close()


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
