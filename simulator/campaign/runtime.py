"""
The container runtime of the campaign's nodes.

A container's command decides its kind, as in the manifests: the agent's program alone is a sidecar, with `run -- ...` a
supervisor with its worker, as a guard a guard with its worker; anything else is a worker.
"""

from __future__ import annotations

from inplace.common.agent_command import agent_arguments, is_guarded
from inplace.common.kube.resources import KubeObject
from inplace.simulator.campaign.containers import (
    AgentContainer,
    Machine,
    Training,
    WorkerContainer,
)
from inplace.simulator.cluster.container_log import OpenLog
from inplace.simulator.cluster.model_guarded import GuardedContainer
from inplace.simulator.cluster.runtime import ContainerRun, RunningContainer, Sandbox


class CampaignRuntime:
    """The runtime of every node."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._pods_made = 0

    async def create_sandbox(self, pod: KubeObject) -> Sandbox:
        """Give the Pod an address."""
        self._pods_made += 1
        return Sandbox(pod["metadata"]["uid"], f"10.64.{self._pods_made // 250}.{self._pods_made % 250 + 1}", {})

    async def remove_sandbox(self, sandbox: Sandbox) -> None:
        """Take its disk back."""
        self._machine.disks.pop(sandbox.uid, None)
        self._machine.links.pop(sandbox.uid, None)

    async def start(self, run: ContainerRun) -> RunningContainer:
        """Start an instance."""
        if agent_arguments(run.command) is None:
            return WorkerContainer(self._machine, run)
        if is_guarded(run.command):
            return GuardedContainer(
                self._machine, run, lambda epoch, leaves: Training(self._machine, run.pod, epoch, leaves=leaves)
            )
        if self._machine.full_disks:
            self._machine.disk(run.pod["metadata"]["uid"]).full = True
        return AgentContainer(self._machine, run)

    def open_log(self, uid: str, container: str, *, previous: bool = False) -> OpenLog | None:
        """Refuse: these containers write no log."""
        raise NotImplementedError(f"{container} of {uid} writes no log (previous: {previous})")

    async def close(self) -> None:
        """Do nothing: containers end with the kubelets' tasks."""
