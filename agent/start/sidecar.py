"""
The sidecar's process: bind the barrier, announce, then run the agent in a loop.

The order keeps the start short: only what the announcement needs comes before it. asyncio and the modules that use it
are imported after the announcement has left, structlog after that.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping

from inplace.agent.settings.config import ConfigError
from inplace.agent.start.prelude import head_start
from inplace.agent.start.shell import Shell, begin, listen, run_shell
from inplace.common.bare.record import replace
from inplace.common.bare.typed import TYPE_CHECKING, Final
from inplace.common.wire.names import DEPTH_CONTAINERS, DEPTH_PROCESS

if TYPE_CHECKING:
    from inplace.agent.agent import Agent
    from inplace.agent.deps import AgentDeps
    from inplace.agent.link.server import GuardServer
    from inplace.agent.settings.config import AgentConfig

UNWATCHED: Final = "expected LINK_FILE beside it, and a guard, which ends a worker that hangs, but LINK_FILE is not set"
UNASKED: Final = "expected LINK_FILE beside it, and a guard, which asks the worker to save, but LINK_FILE is not set"

UNFENCED: Final = (
    "FENCE_AFTER_S: expected RESTART_DEPTH=process beside it, or a supervisor: only an agent that stays while its "
    "worker ends can promise when that is"
)


def run_sidecar(env: Mapping[str, str]) -> int:
    """Run the agent; return the process's exit code."""
    return run_shell(env, _start)


def _start(shell: Shell) -> int:
    """Bind, announce, then load the rest of the agent in the shadow of the server's answer, and run it.

    Raises:
        BarrierError, ConfigError: nothing was announced.
    """
    unwatched = "" if shell.config.link_file else UNWATCHED
    if unwatched and shell.config.watch is not None and shell.config.watch.limits.are_set:
        raise ConfigError((f"STALL_AFTER_S, START_STALL_AFTER_S: {unwatched}",))
    if unwatched and shell.config.save_within_s > 0:
        raise ConfigError((f"SAVE_WITHIN_S: {UNASKED}",))
    if shell.config.fence_after_s and shell.config.restart_depth == DEPTH_CONTAINERS:
        raise ConfigError((UNFENCED,))
    shell = begin(shell)
    config = shell.config
    with listen(config.barrier_address, config.barrier_port) as listener:
        gc.disable()  # what is imported stays; looking for garbage in it is for nothing
        ahead, late = None, False  # a guard's word comes first where one checks
        if not config.checks_awaited:
            ahead, late = head_start(config, shell.credentials, shell.context, shell.memory, shell.phases)
        from inplace.agent.start.loop import run_loop

        if late:
            slot_s = round(config.start_slot_s, 3)
            shell.log.info("start_put_off", slot_s=slot_s, why="the server's first answers came late")
        elif ahead is not None:  # in time: this start waits for no slot
            shell = replace(shell, config=replace(config, start_slot_s=0.0))
        gc.freeze()
        gc.enable()
        return run_loop(shell, _make, listener=listener, ahead=ahead, unwatched=unwatched)


def _make(config: AgentConfig, deps: AgentDeps) -> Agent:
    """Return the agent, and let it serve the guards of this Pod on a socket, if there are any."""
    from inplace.agent.link.server import GuardServer, LinkServer

    path, depth = config.link_file, config.restart_depth
    return agent_of(config, deps, LinkServer(path, depth, clock=deps.clock, log=deps.log) if path else GuardServer())


def agent_of(config: AgentConfig, deps: AgentDeps, server: GuardServer) -> Agent:
    """Return the agent of a Pod whose workers are in other containers; `server` serves the guards there."""
    from inplace.agent.agent import Agent
    from inplace.agent.link.linked_worker import LinkedWorker
    from inplace.agent.report.line_limit import LimitedLog

    peers = LimitedLog(deps.log, deps.clock.monotonic_s)
    stays = config.restart_depth == DEPTH_PROCESS
    worker = LinkedWorker(
        server,
        stays=stays,
        clock=deps.clock,
        log=peers,
        checks=config.checks_awaited,
        guards=config.guards_awaited,
    )
    return Agent(config, deps, worker=worker)
