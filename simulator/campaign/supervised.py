"""Agents that end their worker before themselves: the agent of a guard that stays, and a supervisor."""

from __future__ import annotations

import signal

from inplace.agent.start.arguments import RunOptions, parse
from inplace.agent.start.config import AgentConfig
from inplace.agent.supervisor import SupervisorAgent
from inplace.simulator.campaign.containers import AgentContainer, Training
from inplace.simulator.cluster.model_container import StayingContainer
from inplace.simulator.cluster.model_worker import SupervisedWorker
from inplace.simulator.cluster.runtime import ContainerRun


class StayingAgent(AgentContainer, StayingContainer):
    """An agent that ends its worker before itself; without a worker of its own, that of a guard that stays."""

    agent: SupervisorAgent

    def terminate(self) -> None:
        """Hand SIGTERM to the agent, which ends its worker first; BEFORE its first step it ends at once."""
        if self.process.awaits == 0:
            self.end(128 + signal.SIGTERM)
        else:
            self.process.call(self.agent.terminate, signal.SIGTERM)


class SupervisorContainer(StayingAgent):
    """A supervisor and its worker in one container: when the supervisor ends, both end."""

    _worker: SupervisedWorker

    def signal_child(self, number: int) -> None:
        """Send the worker a signal; a model ends at once at any."""
        self._worker.strike(number)

    def _make(self, config: AgentConfig, run: ContainerRun) -> SupervisorAgent:
        options = parse(run.command[1:], run.env)
        assert isinstance(options, RunOptions), f"expected a supervisor's command line, saw {run.command}"
        self._worker = SupervisedWorker(lambda epoch: Training(self._machine, run.pod, epoch, leaves=True))
        return SupervisorAgent(config, self._deps(config), worker=self._worker, options=options)

    def _clean_up(self) -> None:
        self._worker.kill()
