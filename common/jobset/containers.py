"""The fields of containers' statuses that the controller keeps, and how they are cut: 5,000 Pods have 10,000."""

from __future__ import annotations

import sys
from typing import Final

import msgspec

from inplace.common.jobset.blocked import BLOCKING

MESSAGE_CHARACTERS_MAX: Final = 1024  # of state.waiting; containerd says the image's name four times


class Running(msgspec.Struct, frozen=True, gc=False):
    """state.running: that it is there is all that is read."""


class Terminated(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """state.terminated."""

    exit_code: int = 0
    reason: str | None = None
    message: str | None = None
    finished_at: str | None = None


class Waiting(msgspec.Struct, frozen=True, gc=False):
    """state.waiting; its message is kept, cut, where kubelet cannot start the container."""

    reason: str | None = None
    message: str | None = None

    def __post_init__(self) -> None:
        """Cut the message; Pods that wait for the same share one."""
        if self.message is not None:
            message = sys.intern(self.message[:MESSAGE_CHARACTERS_MAX]) if self.is_blocked else None
            msgspec.structs.force_setattr(self, "message", message)

    @property
    def is_blocked(self) -> bool:
        """Say whether it waits for what kubelet cannot do."""
        return self.reason in BLOCKING


class InitState(msgspec.Struct, frozen=True, gc=False):
    """State of an init container; that it runs is not read."""

    waiting: Waiting | None = None
    terminated: Terminated | None = None


class ContainerState(InitState, frozen=True, gc=False):
    """One of running, terminated and waiting."""

    running: Running | None = None


RESTARTED_WHOLE: Final = "RestartingAllContainers"
"""kubelet's reason in lastState of a container that the rule RestartAllContainers ended; no back-off follows."""


class LastEnd(msgspec.Struct, frozen=True, gc=False):
    """lastState.terminated: why alone is read."""

    reason: str | None = None


class LastState(msgspec.Struct, frozen=True, gc=False):
    """lastState of a container."""

    terminated: LastEnd | None = None


NO_LAST: Final = LastState()
LAST_RESTARTED_WHOLE: Final = LastState(LastEnd(RESTARTED_WHOLE))


class InitStatus(msgspec.Struct, rename="camel", frozen=True, gc=False, kw_only=True):
    """Status of an init container; two objects serve for all lastStates, and the image is kept of one that waits."""

    name: str
    state: InitState = InitState()
    image: str | None = None
    restart_count: int = 0
    last_state: LastState = NO_LAST

    def __post_init__(self) -> None:
        """Keep of lastState only whether the whole Pod was restarted, and the image where it may be the cause."""
        if self.image is not None and ((waiting := self.state.waiting) is None or not waiting.is_blocked):
            msgspec.structs.force_setattr(self, "image", None)
        last = self.last_state
        if last is not NO_LAST:
            was_whole = last.terminated is not None and last.terminated.reason == RESTARTED_WHOLE
            msgspec.structs.force_setattr(self, "last_state", LAST_RESTARTED_WHOLE if was_whole else NO_LAST)


class Device(msgspec.Struct, frozen=True, gc=False, rename={"resource_id": "resourceID"}):
    """The health of one device that a container has."""

    resource_id: str
    health: str | None = None


class DeviceHealth(msgspec.Struct, frozen=True, gc=False):
    """The devices of one resource that a container has. Source: KEP-4680."""

    name: str
    resources: tuple[Device, ...] | None = None


UNHEALTHY: Final = "Unhealthy"
DEVICES_MAX: Final = 4  # of one resource that are kept, and resources; one is enough to leave a node


class ContainerStatus(
    InitStatus,
    frozen=True,
    gc=False,
    kw_only=True,
    rename={"container_id": "containerID", "allocated_resources_status": "allocatedResourcesStatus"},
):
    """Status of a regular container; of its devices the unhealthy ones."""

    container_id: str | None = None
    state: ContainerState = ContainerState()
    allocated_resources_status: tuple[DeviceHealth, ...] | None = None

    def __post_init__(self) -> None:
        """Drop the devices that are well."""
        InitStatus.__post_init__(self)
        if (found := self.allocated_resources_status) is not None:
            msgspec.structs.force_setattr(self, "allocated_resources_status", _unhealthy(found))


def _unhealthy(found: tuple[DeviceHealth, ...]) -> tuple[DeviceHealth, ...] | None:
    """Return the resources with unhealthy devices, and those devices; None where all are well."""
    kept = []
    for resource in found:
        devices = tuple(device for device in resource.resources or () if device.health == UNHEALTHY)
        if devices:
            kept.append(DeviceHealth(resource.name, devices[:DEVICES_MAX]))
    return tuple(kept[:DEVICES_MAX]) or None
