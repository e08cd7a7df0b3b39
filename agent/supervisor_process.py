"""
The process around a `Supervisor`: settings, signals, the loop and the exit code.

A worker's command that does not exist is refused before anything is announced. SIGTERM and SIGINT end the worker, then
this process. SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 are passed on to the worker.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from functools import partial
from random import Random
from typing import Final

from inplace.agent.arguments import RunOptions, find_program
from inplace.agent.barrier import Barrier, HttpBarrier, Report, renderer
from inplace.agent.config import AgentConfig, ConfigError
from inplace.agent.epoch_file import EpochFile
from inplace.agent.exit_code import NOT_EXECUTABLE, NOT_FOUND, ExitCode
from inplace.agent.leftovers import SUPERVISOR, LeftoversError, end_leftovers, supervisor_mark
from inplace.agent.log import LazyLog
from inplace.agent.metrics import AgentMetrics
from inplace.agent.process import phases_of, read_settings, with_kept_epoch
from inplace.agent.process_tree import ReaperError, become_reaper
from inplace.agent.supervisor import Supervisor
from inplace.agent.version import VERSION
from inplace.agent.worker import WorkerProcess, WorkerStartError
from inplace.common.kube.clock import LoopClock
from inplace.common.kube.credentials import Credentials, CredentialsError
from inplace.common.kube.http import Request
from inplace.common.kube.http1 import Http1Transport

LOG_LOAD_S: Final = 1.0  # log lines wait at most this long when there is nothing to announce
STOP_S_MAX: Final = 1.0  # from the worker's end to ours, whatever hangs (a name look-up in a thread)
ENDING: Final = (signal.SIGTERM, signal.SIGINT)
FORWARDED: Final = (signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


class NoBarrier:
    """Opens no port: only the worker waits for the lift, and the lift starts it."""

    async def start(self) -> None:
        """Do nothing."""

    def lift(self, epoch: int | None) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""

    def report(self, report: Report) -> None:
        """Do nothing."""

    async def stop(self) -> None:
        """Do nothing."""


def run_supervisor(options: RunOptions, env: Mapping[str, str]) -> int:
    """Run the agent and its worker; return the process's exit code."""
    log = LazyLog()
    try:
        config, credentials = read_settings(env)
        log = LazyLog(config.log_format, config.log_level)
        for warning in config.warnings:
            log.warning("setting_ignored", message=warning)
        check_command(options.command[0], env)
        become_reaper()
        end_what_was_left(config, log)
        config = with_kept_epoch(config, log)
        started = {"version": VERSION, "pod": config.pod_name, "previous": config.previous_epoch}
        log.info("agent_started", **started, worker=options.command[0])
        return asyncio.run(_run(config, credentials, options, env, log))
    except ConfigError as error:
        for problem in error.problems:
            log.error("setting_refused", message=problem, then=f"exit {ExitCode.CONFIG.value}; nothing was sent")
        return ExitCode.CONFIG
    except ReaperError as error:
        log.error("reaper_refused", message=str(error), then=f"exit {ExitCode.CONFIG.value}; nothing was sent")
        return ExitCode.CONFIG
    except LeftoversError as error:
        then = f"exit {ExitCode.WORKER_STUCK.value}; nothing was sent"
        log.error("worker_stuck", message=str(error), then=then)
        return ExitCode.WORKER_STUCK
    except WorkerStartError as error:
        log.error("worker_not_started", message=str(error), then=f"exit {error.code}; nothing was sent")
        return error.code
    except Exception as error:  # noqa: BLE001 - the process's boundary: kubelet wants a code
        import traceback

        log.error("bug", message=repr(error), trace=traceback.format_exc())
        return ExitCode.BUG
    finally:
        log.load()


def check_command(program: str, env: Mapping[str, str]) -> None:
    """Refuse a program that is not there BEFORE the group waits for this Pod.

    Raises:
        WorkerStartError: it cannot be found or executed.
    """
    path = find_program(program, env)
    if path is None:
        where = "a file" if "/" in program else f"a program in PATH ({env.get('PATH', os.defpath)})"
        raise WorkerStartError(f"the worker's command: expected {where}, saw {program!r}", NOT_FOUND)
    if not os.access(path, os.X_OK):
        raise WorkerStartError(f"the worker's command: expected an executable file, saw {path!r}", NOT_EXECUTABLE)


def end_what_was_left(config: AgentConfig, log: LazyLog) -> None:
    """End the worker of an earlier supervisor BEFORE this one says that none is left; process 1 had no other before.

    Raises:
        LeftoversError: it does not end.
    """
    if os.getpid() != 1 and (count := end_leftovers(config.namespace, config.pod_name)):
        log.warning("leftovers_killed", message=f"{count} processes of a supervisor that was killed ran on")


async def _run(
    config: AgentConfig, credentials: Credentials, options: RunOptions, env: Mapping[str, str], log: LazyLog
) -> int:
    """Build the parts and run them until the Pod ends."""
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
    phases = phases_of(config, metrics)
    barrier: Barrier = NoBarrier()
    if options.listens:
        barrier = HttpBarrier(
            config,
            clock=clock,
            render_metrics=renderer(metrics, log, clock),
        )
    agent = Supervisor(
        config,
        worker=WorkerProcess(
            options.command,
            {**env, SUPERVISOR: supervisor_mark(config.namespace, config.pod_name)},
            clock=clock,
        ),
        options=options,
        transport=transport,
        clock=clock,
        rng=Random(),
        barrier=barrier,
        log=log,
        metrics=metrics,
        memory=EpochFile(config.epoch_file) if config.epoch_file else None,
        phases=phases,
    )
    for number in ENDING:
        loop.add_signal_handler(number, partial(agent.terminate, number))
    for number in FORWARDED:
        loop.add_signal_handler(number, partial(agent.forward, number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {*ENDING, *FORWARDED})  # a careless parent may have left them blocked
    try:
        code = await agent.run()
        loop.call_later(STOP_S_MAX, _leave, code)
        return code
    finally:
        phases.leave()
        await transport.close()


def _leave(code: int) -> None:
    sys.stderr.flush()
    os._exit(code)
