"""
The interface between a kubelet and a container runtime. Local processes and timed models implement it.

Everything above it (lifecycle, probes, status) is the same for both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from inplace.common.kube.resources import KubeObject
from inplace.simulator.cluster.container_log import OpenLog
from inplace.simulator.cluster.pod_spec import ContainerSpec, Probe

SIGKILL_EXIT = 137
START_ERROR_EXIT = 128  # what containerd reports when the command cannot be executed


class StartError(Exception):
    """The container cannot be started: no such command, no such folder."""


@dataclass(frozen=True, slots=True)
class Sandbox:
    """The parts of a Pod that outlive container restarts: its address, and its variables for every container."""

    uid: str
    pod_ip: str
    base_env: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ContainerRun:
    """One container instance to run.

    Args:
        pod: the Pod as the kubelet last saw it.
        restart_count: how often this container was restarted before.
    """

    pod: KubeObject
    sandbox: Sandbox
    spec: ContainerSpec
    command: tuple[str, ...]
    env: Mapping[str, str]
    restart_count: int


class RunningContainer(Protocol):
    """A started instance."""

    async def wait(self) -> int:
        """Return the exit code (128 + signal for a signal) once every process of the instance is gone."""

    async def stop(self, grace_s: float) -> None:
        """Send SIGTERM, then SIGKILL after `grace_s` seconds; return when it is gone."""

    async def probe(self, probe: Probe) -> bool:
        """Probe once, within the probe's own timeout."""

    def signal(self, number: int) -> None:
        """Send a signal to the main process from outside, as a fault does."""

    def signal_child(self, number: int) -> None:
        """Send a signal to a guard's worker from outside.

        Raises:
            LookupError: there is no such worker.
        """


class Runtime(Protocol):
    """Runs the containers of every node."""

    async def create_sandbox(self, pod: KubeObject) -> Sandbox:
        """Give the Pod an address and volumes."""

    async def remove_sandbox(self, sandbox: Sandbox) -> None:
        """Take the address and volumes back; kill the Pod's remaining containers."""

    async def start(self, run: ContainerRun) -> RunningContainer:
        """Start an instance and return when it runs.

        Raises:
            StartError: the instance cannot be started.
        """

    def open_log(self, uid: str, container: str, *, previous: bool = False) -> OpenLog | None:
        """Open the log of a container's present instance, or of the one before; None where there is none."""

    async def close(self) -> None:
        """Kill all remaining containers."""
