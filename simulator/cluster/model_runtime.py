"""
Run containers as timed models, so that thousands of Pods fit in one process under virtual time.

A container's command decides its kind, as in the manifests. An agent (a command that starts with `inplace-agent`) is
the real one, `agent.agent`, as a coroutine with an in-memory transport, barrier and link; below a guard
there is a worker. An init container exits 0 after a while. Any other container is a worker: it takes its first step
after a while, which is a line in its log, and runs until it is stopped. With STEPS and STEP_S in its environment it
exits 0 after STEPS steps of STEP_S seconds. Below a guard it does so from the lift on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import isfinite

from inplace.agent.settings.arguments import ArgumentsError
from inplace.agent.settings.config import AgentConfig, ConfigError
from inplace.agent.settings.exit_code import ExitCode
from inplace.agent.worker.host import STARTING
from inplace.common.agent_command import agent_arguments, is_guarded
from inplace.common.kube.resources import KubeObject
from inplace.common.protocol.link import Lifted
from inplace.simulator.cluster.container_log import OpenLog
from inplace.simulator.cluster.events import ClusterEvent, Kind
from inplace.simulator.cluster.model_agent import ModelAgent, options_of
from inplace.simulator.cluster.model_container import ModelContainer, ModelMachine, WorkerContainer
from inplace.simulator.cluster.model_guarded import GuardedContainer, SupervisedContainer
from inplace.simulator.cluster.model_logs import FIRST_STEP, ModelLogReader, ModelLogs
from inplace.simulator.cluster.model_worker import TimedRun
from inplace.simulator.cluster.pod_spec import Role
from inplace.simulator.cluster.runtime import ContainerRun, Sandbox


@dataclass(kw_only=True)
class ModelRuntime(ModelMachine):
    """The runtime of every node, and the machine that its containers share."""

    pods_made: int = 0

    async def create_sandbox(self, pod: KubeObject) -> Sandbox:
        """Give the Pod an address."""
        self.pods_made += 1
        high, low = divmod(self.pods_made, 250)
        return Sandbox(pod["metadata"]["uid"], f"10.{64 + high // 250}.{high % 250}.{low + 1}", {})

    async def remove_sandbox(self, sandbox: Sandbox) -> None:
        """Forget its folder; an instance ends with the kubelet's task that waits for it."""
        self.links.pop(sandbox.uid, None)

    async def start(self, run: ContainerRun) -> ModelContainer:
        """Start an instance."""
        if is_guarded(run.command):
            return GuardedContainer(self, run)
        has_agent = agent_arguments(run.command) is not None
        if not has_agent or run.spec.role is Role.INIT:
            return WorkerContainer(self, run)
        agent = self.make_agent(run)
        is_alone = isinstance(agent, WorkerContainer) or options_of(run) is None
        return agent if is_alone else SupervisedContainer(self, run, agent)

    def make_agent(self, run: ContainerRun) -> ModelContainer:
        """Return an agent's container; one whose settings are wrong has ended."""
        try:
            return ModelAgent(self, run, AgentConfig.from_env(run.env), rng=self.rng)
        except (ConfigError, ArgumentsError):
            refusal = WorkerContainer(self, run)
            refusal.end(ExitCode.CONFIG)
            return refusal

    def open_log(self, uid: str, container: str, *, previous: bool = False) -> OpenLog | None:  # noqa: ARG002
        """Open no log: these containers write none."""
        return None

    async def close(self) -> None:
        """Do nothing."""


@dataclass(kw_only=True)
class TimedRuntime(ModelRuntime):
    """A runtime whose workers are timed, write logs and tell of their first steps.

    Args:
        tell: takes first steps.
    """

    tell: Callable[[ClusterEvent], None]
    logs: ModelLogs = field(init=False)

    def __post_init__(self) -> None:
        """Begin without logs."""
        self.logs = ModelLogs(self.clock.wall_s)

    async def remove_sandbox(self, sandbox: Sandbox) -> None:
        """Forget its folder and its logs."""
        await super().remove_sandbox(sandbox)
        self.logs.forget(sandbox.uid)

    async def start(self, run: ContainerRun) -> ModelContainer:
        """Start an instance with a new log."""
        log = self.logs.begin(run.sandbox.uid, run.spec.name)
        started = await super().start(run)
        started.when_ended(log.end)
        return started

    def open_log(self, uid: str, container: str, *, previous: bool = False) -> ModelLogReader | None:
        """Open a container's log."""
        return self.logs.open(uid, container, previous=previous)

    def make_worker(self, run: ContainerRun) -> TimedRun:
        """Start a worker."""
        log = self.logs.newest(run.sandbox.uid, run.spec.name)
        steps, step_s = _number(run.env.get("STEPS")), _number(run.env.get("STEP_S"))
        life_s = 0.0 if run.spec.role is Role.INIT else steps * step_s if steps else None

        def on_first_step() -> None:
            log.write(FIRST_STEP)
            self._tell(run, Kind.FIRST_STEP, "model")

        return TimedRun(self, on_first_step, life_s, log.stacks)

    def make_child(
        self,
        run: ContainerRun,
        epoch: int | None,
        lifted: Lifted,  # noqa: ARG002
        *,
        leaves: bool,  # noqa: ARG002
    ) -> TimedRun:
        """Start a worker, of which its parent's log tells."""
        log = self.logs.newest(run.sandbox.uid, run.spec.name)
        log.event(STARTING, epoch=epoch)
        self._tell(run, Kind.WORKER_STARTED)
        made = self.make_worker(run)
        made.ended.add_done_callback(lambda ended: log.worker_exited(epoch, ended))
        return made

    def _tell(self, run: ContainerRun, kind: Kind, detail: str = "") -> None:
        """Tell of a moment in a worker's life."""
        if run.spec.role is Role.REGULAR:
            self.tell(ClusterEvent.of(run.pod, self.clock.monotonic_s(), kind, run.spec.name, detail))


def _number(text: str | None) -> float:
    """Read a variable of a worker's; a text that is no number makes no step, and ends no cluster."""
    try:
        number = float(text or 0)
    except ValueError:
        return 0.0
    return number if isfinite(number) else 0.0
