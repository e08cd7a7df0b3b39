"""
The supervisor's process: its own worker below it, and the signals for that worker.

SIGTERM and SIGINT end the worker, then
this process, as does another signal that ends the Pod (`agent.worker.outside_signals`). All others are passed on.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial

from inplace.agent.agent import Agent
from inplace.agent.deps import AgentDeps
from inplace.agent.report.log import LazyLog
from inplace.agent.settings.address import tail_folder
from inplace.agent.settings.arguments import WorkerOptions
from inplace.agent.settings.config import AgentConfig, ConfigError
from inplace.agent.start.loop import run_loop
from inplace.agent.start.shell import SIGNALS, Shell, begin, listen, run_shell
from inplace.agent.worker.cleaning import Cleaning
from inplace.agent.worker.leftovers import SUPERVISOR, end_leftovers, supervisor_mark
from inplace.agent.worker.outside_signals import OutsideSignals
from inplace.agent.worker.process import WorkerProcess
from inplace.agent.worker.process_tree import become_reaper


def run_supervised(options: WorkerOptions, env: Mapping[str, str]) -> int:
    """Run the agent and its worker; return the process's exit code."""
    return run_shell(env, partial(_start, options, env))


def _start(options: WorkerOptions, env: Mapping[str, str], shell: Shell) -> int:
    """Make sure that a worker can be run, and that none runs; then run the agent.

    Raises:
        StartError: nothing was announced.
    """
    become_reaper()
    end_what_was_left(shell.config, shell.log)
    shell = begin(shell, worker=options.command[0])
    memory = shell.config.epoch_file
    cleaning = Cleaning(options.clean, memory, memory.rpartition("/")[0], env)
    if cleaning.refused:
        raise ConfigError(tuple(cleaning.refused))
    outside = OutsideSignals(options.stop_signal)

    def make(config: AgentConfig, deps: AgentDeps) -> Agent:
        own = {SUPERVISOR: supervisor_mark(config.namespace, config.pod_name)}
        folder = tail_folder("", memory)
        worker = WorkerProcess(
            options, {**env, **own}, cleaning=cleaning, log=deps.log, memory=deps.metrics, tail_folder=folder
        )
        agent = Agent(config, deps, worker=worker, options=options, outside=outside)
        asyncio.get_running_loop().add_reader(outside.descriptor, agent.keeper.take_signals)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)  # a careless parent may have blocked them
        return agent

    config = shell.config
    with listen(config.barrier_address, config.barrier_port) if options.listens else nullcontext() as listener:
        return run_loop(shell, make, listener=listener)


def end_what_was_left(config: AgentConfig, log: LazyLog) -> None:
    """End the worker of an earlier supervisor BEFORE this one says that none is left; process 1 had no other before.

    Raises:
        LeftoversError: it does not end.
    """
    if os.getpid() != 1 and (count := end_leftovers(config.namespace, config.pod_name)):
        log.warning("leftovers_killed", message=f"{count} processes of a supervisor that was killed ran on")
