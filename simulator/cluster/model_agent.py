"""A modelled container whose process is the agent: the real one, as a coroutine."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

from inplace.agent.barrier.http import Barrier
from inplace.agent.deps import AgentDeps
from inplace.agent.settings.arguments import WorkerOptions, parse
from inplace.agent.settings.config import AgentConfig
from inplace.agent.settings.exit_code import ExitCode
from inplace.agent.start.sidecar import agent_of, below_guard
from inplace.common.agent_command import GUARD, agent_arguments
from inplace.simulator.cluster.model_container import ModelMachine, StayingContainer
from inplace.simulator.cluster.model_link import ModelServer
from inplace.simulator.cluster.pod_spec import Probe
from inplace.simulator.cluster.runtime import SIGKILL_EXIT, ContainerRun


class ModelBarrier(Barrier):
    """The agent's barrier without a socket."""

    lifted = False

    def lift(self, epoch: int | None) -> None:  # noqa: ARG002
        """Answer the probe with success from now on."""
        self.lifted = True

    def close(self) -> None:
        """Answer the probe with failure again."""
        self.lifted = False


class QuietLog:
    """Drops every line: 5,000 agents would write a hundred thousand."""

    def debug(self, event: str, **fields: Any) -> None:
        """Drop it."""

    info = warning = error = debug


class ModelAgent(StayingContainer):
    """The real agent's coroutine in the place of its process, beside guards or below one.

    Args:
        rng: the agent's jitter.
        more: of `AgentDeps`.
    """

    def __init__(
        self, machine: ModelMachine, run: ContainerRun, config: AgentConfig, *, rng: Random, **more: Any
    ) -> None:
        super().__init__(machine, run)
        self._barrier = ModelBarrier()
        deps = AgentDeps(
            transport=machine.transport_for(run.pod),
            clock=machine.clock,
            rng=rng,
            barrier=self._barrier,
            log=QuietLog(),
            **more,
        )
        if (options := options_of(run)) is not None:
            config = below_guard(config, options)
        self._server = ModelServer(machine.link(self.uid), config.restart_depth)
        self.agent = agent_of(config, deps, self._server)
        self._has_begun = False

    async def wait(self) -> int:
        """Run the agent until it ends or is killed."""
        try:
            await self._machine.clock.sleep(self._machine.timings.agent_start.draw(self._machine.rng))
            running = self._start(self._run())
            running.add_done_callback(self._take_end)
            return await asyncio.shield(self._ended)
        finally:
            self.end(SIGKILL_EXIT)
            self._server.leave()
            self._kill()

    def terminate(self) -> None:
        """Hand SIGTERM to the agent; BEFORE its first step it ends at once."""
        if self._has_begun:
            self._call(self.agent.keeper.terminate, signal.SIGTERM)
        else:
            self.end(ExitCode.TERMINATED)

    async def probe(self, probe: Probe) -> bool:
        """Return whether the barrier is lifted."""
        await super().probe(probe)
        return self._barrier.lifted

    def _start(self, program: Coroutine[Any, Any, int]) -> asyncio.Future[int]:
        """Start the process."""
        self._process = asyncio.ensure_future(program)
        return self._process

    def _call(self, function: Callable[..., object], *arguments: object) -> None:
        """Let the process call a function."""
        function(*arguments)

    def _kill(self) -> None:
        """End the process, if it was started."""
        if self._has_begun:
            self._process.cancel()

    async def _run(self) -> int:
        self._has_begun = True
        return await self.agent.run()

    def _take_end(self, running: asyncio.Future[int]) -> None:
        if running.cancelled():
            self.end(SIGKILL_EXIT)
        elif (error := running.exception()) is None:
            self.end(running.result())
        elif not self._ended.done():
            self._ended.set_exception(error)  # an agent's bug must stop the simulation, not restart a container


def options_of(run: ContainerRun) -> WorkerOptions | None:
    """Return the options of an agent that is below its guard; None for a sidecar.

    Raises:
        ArgumentsError: its command line cannot be used.
    """
    arguments = agent_arguments(run.command) or []
    is_sidecar = not arguments and not run.env.get("WORKER_COMMAND")
    options = None if is_sidecar else parse(arguments, run.env)
    return None if arguments[:1] == [GUARD] else options
