"""How a Pod's worker is run, in the words of the annotation `inplace.dev/restart` where that has one."""

from __future__ import annotations

from enum import StrEnum

from inplace.common.wire.names import DEPTH_CONTAINERS, DEPTH_PROCESS


class Mode(StrEnum):
    """What a demo, a campaign or a benchmark runs."""

    PROCESS = DEPTH_PROCESS  # a sidecar; the guard stays, and starts its worker again
    CONTAINERS = DEPTH_CONTAINERS  # a sidecar; the guard ends with its worker, and kubelet starts all containers again
    SUPERVISOR = "supervisor"  # guard and agent in the worker's container: `inplace-agent run`
    PROBE = "probe"  # a sidecar, and no guard: kubelet's startup probe holds the worker back

    @property
    def is_guarded(self) -> bool:
        """Say whether a guard is the worker's parent, so that an agent can end a worker that hangs."""
        return self is not Mode.PROBE

    @property
    def keeps_agents(self) -> bool:
        """Say whether a restart keeps the agents, and restarts the workers alone."""
        return self in (Mode.PROCESS, Mode.SUPERVISOR)


GUARDED = tuple(mode for mode in Mode if mode.is_guarded)
