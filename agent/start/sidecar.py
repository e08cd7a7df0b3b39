"""
The agent's process, beside its guards or below one: bind the barrier, announce, then run the agent in a loop.

The order keeps the start short: only what the announcement needs comes before it. asyncio and the modules that use it
are imported after the announcement has left, structlog after that.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping
from contextlib import nullcontext

from inplace.agent.settings.config import ConfigError
from inplace.agent.settings.exit_code import ExitCode
from inplace.agent.start.prelude import head_start
from inplace.agent.start.shell import Shell, begin, listen, run_shell
from inplace.common.bare.record import replace
from inplace.common.bare.typed import TYPE_CHECKING, Final
from inplace.common.wire.names import DEPTH_CONTAINERS, DEPTH_PROCESS

if TYPE_CHECKING:
    from inplace.agent.agent import Agent
    from inplace.agent.deps import AgentDeps
    from inplace.agent.link.server import GuardServer
    from inplace.agent.settings.arguments import WorkerOptions
    from inplace.agent.settings.config import AgentConfig

UNWATCHED: Final = "expected LINK_FILE beside it, and a guard, which ends a worker that hangs, but LINK_FILE is not set"
UNASKED: Final = "expected LINK_FILE beside it, and a guard, which asks the worker to save, but LINK_FILE is not set"
UNRANKED: Final = (
    "MEMBERS: expected LINK_FILE beside it, or a supervisor: only a guard gives its worker the rank, but LINK_FILE is "
    "not set; let the controller or `inplace inject` add the guard, or take inplace.dev/members from the jobset"
)
UNFENCED: Final = (
    "FENCE_AFTER_S: expected RESTART_DEPTH=process beside it, or a supervisor: only an agent that stays while its "
    "worker ends can promise when that is"
)


def run_sidecar(env: Mapping[str, str]) -> int:
    """Run the agent; return the process's exit code."""
    return run_shell(env, _start)


def run_below_guard(options: WorkerOptions, env: Mapping[str, str], link: int) -> int:
    """Run the agent of the guard that is this process's parent, over the socket `link`; return the exit code."""

    def start(shell: Shell) -> int:
        return _start(replace(shell, config=below_guard(shell.config, options)), options, link)

    return run_shell(env, start)


def below_guard(config: AgentConfig, options: WorkerOptions) -> AgentConfig:
    """Return the settings of an agent below a guard: who can start the container anew, and what the guard does."""
    code = config.container_restart_exit_code
    if options.once or code is None:
        code = config.restart_exit_code
    return replace(
        config,
        link_file="",
        guards_awaited=0,
        checks_awaited=1 if options.before_announce else 0,
        restart_depth=DEPTH_CONTAINERS if options.once else DEPTH_PROCESS,
        restart_exit_code=code,
        clean_after=0 if config.container_restart_exit_code is None else config.clean_after,
    )


def _start(shell: Shell, options: WorkerOptions | None = None, link: int = -1) -> int:
    """Bind, announce, then load the rest of the agent in the shadow of the server's answer, and run it.

    Raises:
        BarrierError, ConfigError: nothing was announced.
    """
    unwatched = "" if shell.config.link_file or options is not None else UNWATCHED
    if unwatched and shell.config.watch is not None and shell.config.watch.limits.are_set:
        raise ConfigError((f"STALL_AFTER_S, START_STALL_AFTER_S: {unwatched}",))
    if unwatched and shell.config.save_within_s > 0:
        raise ConfigError((f"SAVE_WITHIN_S: {UNASKED}",))
    if unwatched and shell.config.slot is not None:
        raise ConfigError((UNRANKED,))
    if shell.config.fence_after_s and shell.config.restart_depth == DEPTH_CONTAINERS:
        raise ConfigError((UNFENCED,))
    shell = begin(shell) if options is None else begin(shell, worker=options.command[0])
    config = shell.config
    listens = options is None or options.listens

    def make(config: AgentConfig, deps: AgentDeps) -> Agent:
        return _make(options, link, config, deps)

    with listen(config.barrier_address, config.barrier_port) if listens else nullcontext() as listener:
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
        return run_loop(shell, make, listener=listener, ahead=ahead, unwatched=unwatched)


def _make(options: WorkerOptions | None, link: int, config: AgentConfig, deps: AgentDeps) -> Agent:
    """Return the agent, and let it serve the guards of this Pod on a socket, if there are any."""
    from inplace.agent.link.server import GuardServer, LinkServer

    at = link if options is not None else config.link_file
    if not at:
        return agent_of(config, deps, GuardServer())
    server = LinkServer(at, config.restart_depth, clock=deps.clock, log=deps.log)
    if options is None:
        return agent_of(config, deps, server)
    agent = agent_of(config, deps, server, options.final_codes)
    server.over = lambda: agent.end(ExitCode.TERMINATED)
    return agent


def agent_of(
    config: AgentConfig, deps: AgentDeps, server: GuardServer, final_codes: frozenset[int] = frozenset()
) -> Agent:
    """Return the agent of a Pod; `server` serves its guards, whose final codes may be known."""
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
        final_codes=final_codes,
    )
    return Agent(config, deps, worker=worker)
