"""Run the JobSet controller as a real process, and start it again when it ends, as a Deployment does."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

import inplace
from inplace.common.agent_command import AGENT_COMMAND
from inplace.common.kube.clock import Clock
from inplace.simulator.cluster.container_log import ContainerLog
from inplace.simulator.cluster.processes import LocalProcess

RESTART_S = 1.0
_ROOT = Path(inplace.__file__).parents[1]
_GRACE_S = 5.0
# Any free ones: the Pods here listen on 8080 as well, the usual port of agents and of the controller's metrics.
_PORTS = ("--probe-bind-address=127.0.0.1:0", "--metrics-bind-address=127.0.0.1:0")


class ControllerProcess:
    """`inplace-controller` with a kubeconfig.

    Args:
        log: the file that takes its output.
        marker: variables by which the cluster's reaper finds it.
        adds_agent: to JobSets that restart in place and have none.
    """

    def __init__(
        self, kubeconfig: Path, log: Path, *, clock: Clock, marker: Mapping[str, str], adds_agent: bool = False
    ) -> None:
        self._flags = (f"--agent-image={AGENT_COMMAND}",) if adds_agent else ()
        self._marker = dict(marker)
        self._kubeconfig = kubeconfig
        self._log = log
        self._clock = clock

    async def run(self) -> None:
        """Keep it running until cancelled."""
        while True:
            process = self._start()
            try:
                await process.wait()
            except asyncio.CancelledError:
                await process.stop(_GRACE_S)
                raise
            await self._clock.sleep(RESTART_S)

    def _start(self) -> LocalProcess:
        interpreter = str(Path(sys.executable).parent)
        env = {
            "PATH": f"{interpreter}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "PYTHONPATH": str(_ROOT),
            "KUBECONFIG": str(self._kubeconfig),
        } | self._marker
        return LocalProcess(
            [sys.executable, "-m", "inplace.controller", "--no-leader-elect", *self._flags, *_PORTS],
            env,
            self._log.parent,
            marker=f"controller/{uuid4().hex}",
            pod_ip="127.0.0.1",
            log=ContainerLog(self._log, self._clock.wall_s),
            on_line=_ignore,
            clock=self._clock,
        )


def _ignore(line: bytes) -> None:
    del line
