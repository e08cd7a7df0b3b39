"""
What an agent does only in a group with spares: say what its worker is in an epoch, and end a Pod that is not needed.

A Pod's unit, the Pod or its Job, is a member of an epoch, with a rank, or a spare: its guards then wait without a
worker. When the JobSet has completed, a Pod without a worker ends its workers' containers with code 0, so that it
completes as well.

`common.protocol.agent` decides who may run. Loaded only where MEMBERS is set. docs/adr/0107
"""

from __future__ import annotations

from collections.abc import Callable

from inplace.agent.deps import AgentDeps
from inplace.agent.link.linked_worker import LinkedWorker
from inplace.agent.settings.config import AgentConfig
from inplace.agent.settings.slot import host_of
from inplace.common.protocol.agent import is_spare
from inplace.common.protocol.errors import InvariantError
from inplace.common.protocol.link import PlayedRank
from inplace.common.protocol.members import of_epoch
from inplace.common.protocol.pod import PodState, WorkerLife


class SlotKeeper:
    """Keeps one Pod's slot.

    Args:
        config: of a Pod with a slot.
        worker: this Pod's.
        state: returns where the Pod's machine stands.
    """

    def __init__(
        self, config: AgentConfig, deps: AgentDeps, worker: LinkedWorker, *, state: Callable[[], PodState]
    ) -> None:
        assert config.slot is not None
        self._slot, self._index, self._hosts = config.slot, config.index, config.hosts
        self._log = deps.log
        self._worker = worker
        self._state = state
        self._told = 0  # the epoch that is known to run without this Pod
        self._is_completed = False  # the JobSet
        self._is_over = False  # the guards know

    def played(self, epoch: int) -> PlayedRank:
        """Return what the worker is in an epoch for which the barrier lifts."""
        view = self._state().agent.view
        members = of_epoch(view.members if view is not None else None, epoch)
        job, index = (0, self._slot) if self._index is None else (self._slot, self._index)
        place = members.place_of(job, index) if members is not None else None
        if members is None or place is None or bool(members.pods) != (self._index is not None):
            raise InvariantError(f"expected a member of epoch {epoch} in slot {self._slot}, saw {members!r}")
        host = host_of(self._hosts, dict(members.exchanged).get(0, 0))
        if not members.pods:
            return PlayedRank(place, members.size, host)
        return PlayedRank(place, members.pods_in_all, host, place // members.pods, members.size)

    def complete(self) -> None:
        """Take note that the JobSet's work is done."""
        self._is_completed = True
        self.go_on()

    def go_on(self) -> bool:
        """Do what the machine's new state asks for; say whether this Pod is a spare."""
        state = self._state()
        if self._is_completed and not self._is_over and state.life is WorkerLife.ABSENT:
            self._is_over = True
            self._log.info("spare_completed", epoch=state.agent.epoch or None, slot=self._slot)
            self._worker.complete()
        spares = is_spare(state.agent)
        if spares and self._told != state.agent.epoch - 1:
            self._told = state.agent.epoch - 1
            self._log.info("spare_waiting", epoch=self._told, slot=self._slot)
        return spares
