"""What an agent works with: its connections, clock, log and metrics. Whoever makes an agent passes them in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from inplace.agent.announce.pod_patches import PodPatches
from inplace.agent.barrier.http import Barrier
from inplace.agent.report.log import Log
from inplace.agent.report.metrics import AgentMetrics
from inplace.agent.report.phases import RestartPhases
from inplace.agent.settings.epoch_file import EpochFile
from inplace.common.kube.clock import Clock
from inplace.common.kube.http.request import Transport

if TYPE_CHECKING:
    from inplace.agent.progress.kept_tails import KeptTails
    from inplace.agent.progress.stall_watch import StallWatch
    from inplace.agent.worker.save_requests import SaveRequests


@dataclass(slots=True, kw_only=True)
class AgentDeps:
    """What an agent works with.

    Args:
        transport: carries requests to the API server; the caller closes it.
        clock: the only source of time.
        rng: the only source of jitter.
        barrier: what holds the worker back; started and stopped by `Agent.run`.
        log: where events go.
        metrics: counted into.
        memory: keeps each epoch BEFORE it is announced.
        stalls: finds a worker that hangs; None where no worker can be watched.
        tails: keeps what each run of the worker wrote last; None keeps nothing.
        saves: asks the worker to save before a planned stop; None where nobody wants that.
        phases: times the restart; None times it from now, by `clock`.
        now_s: seconds on the clock of leases, which goes on while the machine sleeps; None is `clock`'s.
        on_end: told the exit code as soon as it stands; tasks and connections are still to be closed.
        patches: sends the PATCHes of this agent's Pod.
        tasks: those that the agent's end waits for; entered by `Agent.run`.
    """

    transport: Transport
    clock: Clock
    rng: Random
    barrier: Barrier
    log: Log
    metrics: AgentMetrics = field(default_factory=AgentMetrics)
    memory: EpochFile = field(default_factory=EpochFile)
    stalls: StallWatch | None = None
    tails: KeptTails | None = None
    saves: SaveRequests | None = None
    phases: RestartPhases | None = None
    now_s: Callable[[], float] | None = None
    on_end: Callable[[int], object] = lambda _code: None
    patches: PodPatches = field(init=False)
    tasks: asyncio.TaskGroup = field(init=False, default_factory=asyncio.TaskGroup)

    def __post_init__(self) -> None:
        """Let all PATCHes go one way."""
        self.patches = PodPatches(self.transport, self.clock, self.log, self.metrics)
