"""
The sidecar's process: bind the barrier, announce, then run the agent in a loop.

The order keeps the start short: only what the announcement needs comes before it. asyncio and the modules that use it
are imported after the announcement has left, structlog after that.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping

from inplace.agent.agent_file import leave_agent_file
from inplace.agent.listener import listen
from inplace.agent.prelude import head_start
from inplace.agent.shell import Shell, begin, run_shell


def run_sidecar(env: Mapping[str, str]) -> int:
    """Run the agent; return the process's exit code."""
    return run_shell(env, _start)


def _start(shell: Shell) -> int:
    """Bind, announce, then load the rest of the agent in the shadow of the server's answer, and run it.

    Raises:
        BarrierError: nothing was announced.
    """
    shell = begin(shell)
    config = shell.config
    with listen(config.barrier_address, config.barrier_port) as listener:
        gc.disable()  # what is imported stays; looking for garbage in it is for nothing
        ahead = head_start(config, shell.credentials, shell.context, shell.memory, shell.phases)
        problem = leave_agent_file(config.agent_file) if config.agent_file else None
        if problem is not None:
            shell.log.warning("agent_file_not_left", message=problem, then="the worker may not find its file")
        from inplace.agent.loop import run_loop
        from inplace.agent.sidecar_agent import SidecarAgent

        gc.freeze()
        gc.enable()
        return run_loop(shell, SidecarAgent, listener=listener, ahead=ahead)
