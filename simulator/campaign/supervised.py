"""A supervisor and its worker in one container: a real supervisor, and a worker that only runs."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Mapping

from inplace.agent.start.arguments import RunOptions, parse
from inplace.agent.start.config import AgentConfig
from inplace.agent.supervisor_agent import SupervisorAgent
from inplace.agent.worker.command import EPOCH
from inplace.common.kube.resources import KubeObject
from inplace.common.protocol.stall import Stalled
from inplace.simulator.campaign.containers import AgentContainer, Container, Machine, Training
from inplace.simulator.cluster.pod_spec import Probe
from inplace.simulator.cluster.runtime import SIGKILL_EXIT, ContainerRun


class SupervisedWorker:
    """The worker below a supervisor; implements `agent.worker.process.Worker`."""

    def __init__(self, machine: Machine, pod: KubeObject) -> None:
        self._machine = machine
        self._pod = pod
        self._training: Training | None = None

    async def prepare(self) -> None:
        """Do nothing: there are no process signals to handle."""

    async def until_fit(self, epoch: int) -> None:
        """Check nothing."""

    def start(self, env: Mapping[str, str]) -> None:
        """Start the worker."""
        assert self._training is None or self._training.ended.done(), "expected no worker, saw one"
        epoch = int(env[EPOCH]) if env[EPOCH] else None
        self._training = Training(self._machine, self._pod, epoch, leaves=True)

    async def exited(self) -> int:
        """Return the exit code."""
        assert self._training is not None
        return await asyncio.shield(self._training.ended)

    async def gone(self) -> None:
        """Return when no leftovers of the worker remain."""
        await self._machine.clock.sleep(self._machine.timings.supervised_left.draw(self._machine.rng))
        assert self._training is not None
        self._training.clear()

    def signal(self, number: int) -> None:
        """Send a signal; SIGTERM is obeyed after a while, unless the Pod's containers are deaf to it."""
        training = self._training
        if training is None or training.ended.done():
            return
        if number == signal.SIGKILL:
            training.end(SIGKILL_EXIT)
        elif self._pod["metadata"]["uid"] not in self._machine.deaf:
            exit_s = self._machine.timings.supervised_exit.draw(self._machine.rng)
            asyncio.get_running_loop().call_later(exit_s, training.end, 128 + number)

    async def examine(self, stalled: Stalled, pid: int | None) -> str | None:
        """Have no command."""

    def runs(self) -> bool:
        """Say that it runs."""
        return True

    def grace_s(self) -> float | None:
        """Leave it to the supervisor's options."""
        return None

    async def close(self) -> None:
        """Kill the worker and its leftovers."""
        self.kill()

    def kill(self) -> None:
        """Kill the worker and its leftovers, as the kernel does with a container's processes."""
        if self._training is not None:
            self._training.end(SIGKILL_EXIT)
            self._training.clear()


class StayingContainer(AgentContainer):
    """An agent that ends its worker before itself."""

    agent: SupervisorAgent

    def terminate(self) -> None:
        """Hand SIGTERM to the supervisor, which ends its worker first; BEFORE its first step it ends at once."""
        if self.process.awaits == 0:
            self.end(128 + signal.SIGTERM)
        elif not self._ended.done():
            self.process.call(self.agent.terminate, signal.SIGTERM)

    async def stop(self, grace_s: float) -> None:
        """Send SIGTERM to the container, and SIGKILL after the grace."""
        if self.uid not in self._machine.deaf:
            self.terminate()
        await asyncio.wait([self._ended], timeout=grace_s)
        self.end(SIGKILL_EXIT)


class SupervisorContainer(StayingContainer):
    """A supervisor and its worker in one container: when the supervisor ends, both end."""

    _worker: SupervisedWorker

    async def probe(self, probe: Probe) -> bool:
        """Answer as the barrier does."""
        await Container.probe(self, probe)
        return self.barrier.lifted

    def _make(self, config: AgentConfig, run: ContainerRun) -> SupervisorAgent:
        options = parse(run.command[1:], run.env)
        assert isinstance(options, RunOptions), f"expected a supervisor's command line, saw {run.command}"
        self._worker = SupervisedWorker(self._machine, run.pod)
        return SupervisorAgent(config, self._deps(config), worker=self._worker, options=options)

    def _clean_up(self) -> None:
        self._worker.kill()
