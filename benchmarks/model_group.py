"""What `restart_model` restarts: the modes, how agents spread their requests, one Pod's delays, and the result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from inplace.agent.announce.herd import RATE_PER_S, WINDOW_S, Herd
from inplace.agent.announce.retry_budget import RetryBudget

Mode = Literal["sidecar", "guarded", "supervisor", "upstream"]
SIDECARS: Final[tuple[Mode, ...]] = ("sidecar", "guarded")  # their agents start alike


@dataclass(frozen=True, slots=True)
class Slots:
    """How agents spread their requests: the settings of `agent.announce.herd`."""

    rate_per_s: float = RATE_PER_S
    window_s_max: float = WINDOW_S


NO_SLOTS: Final = Slots(window_s_max=0.0)  # the setting that deploy/apf recommends


@dataclass(frozen=True, slots=True)
class ModelledRestart:
    """One modelled restart; moments are seconds after the death.

    Args:
        total_s: the last worker runs.
        kubelet_s: what the same draws take with an API server, network and controller that take no time, and cores
            for every container.
        bound_s: no order of the same work on the same cores can be faster, see `Restarting.bound_s`.
        rejected: answers 429.
        phases: moments by name.
    """

    total_s: float
    kubelet_s: float
    bound_s: float
    rejected: int
    phases: dict[str, float]


@dataclass(slots=True)
class Pod:
    """One Pod's own delays, drawn before anything happens, so that every way is judged by the same luck.

    Args:
        down_s: from the order to restart (or the end) to its next agent's first moment; a supervisor's: to its
            worker's tree gone.
        agent_s: from there to its first request.
        made_s: from its next agent's first moment to its worker's container, where that does not wait for the lift.
        up_s: from its lift to its worker's process.
    """

    down_s: float
    agent_s: float
    up_s: float
    herd: Herd
    budget: RetryBudget
    left: int
    tries: int = 0
    begun_s: float = 0.0
    made_s: float = 0.0
    has_container_s: float = 0.0
