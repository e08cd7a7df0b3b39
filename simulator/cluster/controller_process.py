"""Run the JobSet controller as a real process, and start it again when it ends, as a Deployment does."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from inplace.common.agent_command import AGENT_COMMAND
from inplace.common.kube.clock import Clock
from inplace.simulator.cluster.process_runtime import ProcessRuntime

RESTART_S = 1.0
_GRACE_S = 5.0
# Any free ones: the Pods here listen on 8080 as well, the usual port of agents and of the controller's metrics.
_PORTS = ("--probe-bind-address=127.0.0.1:0", "--metrics-bind-address=127.0.0.1:0")


async def keep_controller(
    runtime: ProcessRuntime, kubeconfig: Path, log: Path, *, clock: Clock, adds_agent: bool
) -> None:
    """Keep `inplace-controller` running until cancelled.

    Args:
        runtime: ends its process with the cluster.
        kubeconfig: the controller's.
        log: the file that takes its output.
        clock: times its pauses.
        adds_agent: to JobSets that restart in place and have none.
    """
    flags = (f"--agent-image={AGENT_COMMAND}",) if adds_agent else ()
    command = [sys.executable, "-m", "inplace.controller", "--no-leader-elect", *flags, *_PORTS]
    while True:
        process = runtime.start_program(command, kubeconfig, log)
        try:
            await process.wait()
        except asyncio.CancelledError:
            await process.stop(_GRACE_S)
            raise
        await clock.sleep(RESTART_S)
