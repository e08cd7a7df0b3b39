"""
A simple second ledger: the seed's `reconcileEpochs` over all Pods, plus our refinements.

It keeps only each Pod's views, and every question reads every Pod. Tests compare `common.protocol.ledger` with it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from inplace.common.protocol.bounds import INT32_MAX
from inplace.common.protocol.decision import Decision
from inplace.common.protocol.pod_view import PodLife, PodView
from inplace.common.protocol.slot import Shape, Slot


@dataclass
class DumbPod:
    """One Pod and its views up to now."""

    view: PodView
    epoch: int = 0  # the highest valid one
    joined: int = 0  # the highest valid one announced while it was live
    synced_at_start: int = 0  # S when this run of the worker was first seen
    ran: bool = False
    intruded: bool = False


@dataclass
class DumbLedger:
    """Answers like Ledger, by reading every Pod."""

    shape: Shape
    synced: int = 0
    deprecated: int = 0
    pods: dict[str, DumbPod] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)  # uids of Pods whose worker of epoch S died
    census: bool = False  # every slot was seen at S
    vanished: set[int] = field(default_factory=set)  # epochs of Pods that are gone and whose end was not seen

    def observe(self, view: PodView) -> None:
        """Process one Pod event."""
        pod = self.pods.get(view.uid)
        if pod is None or pod.view.worker.instance != view.worker.instance:
            epoch, joined, intruded = (pod.epoch, pod.joined, pod.intruded) if pod else (0, 0, False)
            pod = self.pods[view.uid] = DumbPod(view, epoch, joined, self.synced, intruded=intruded)
        pod.view = view
        pod.ran = pod.ran or view.worker.running
        before = pod.epoch
        self._believe(pod)
        if before < pod.epoch <= self.synced and self.census:
            pod.intruded = self.shape.expects(view.slot)
        if pod.epoch > self.synced or view.life is not PodLife.LIVE:
            pod.intruded = False
        edge = pod.ran and view.worker.failed and pod.synced_at_start == self.synced
        told = view.failed_epoch == self.synced and view.life is PodLife.LIVE
        if (edge or told) and pod.epoch == self.synced > 0 and self.shape.expects(view.slot):
            self.broken.add(view.uid)
        self._take_census()

    def forget(self, uid: str) -> None:
        """Drop a Pod."""
        self.pods.pop(uid, None)

    def vanish(self, uid: str) -> None:
        """Drop a Pod whose object is gone."""
        pod = self.pods.get(uid)
        if pod is not None and pod.view.life in (PodLife.LIVE, PodLife.LEAVING) and pod.epoch > self.synced:
            self.vanished.add(pod.epoch)
        self.forget(uid)

    def reshape(self, shape: Shape) -> None:
        """Expect other slots."""
        if shape != self.shape:
            self.shape, self.census = shape, False
            for pod in self.pods.values():
                pod.intruded = pod.intruded and shape.expects(pod.view.slot)
            self._take_census()

    def learn(self, synced: int, deprecated: int) -> None:
        """Process the status."""
        self.deprecated = max(self.deprecated, deprecated)
        if synced > self.synced:
            self.synced, self.broken, self.census = synced, set(), False
            for pod in self.pods.values():
                pod.intruded = False
                self._believe(pod)
            self._take_census()

    def decide(self, *, restarts_max: int, uncounted: int = 0) -> Decision:
        """Reconcile epochs as the seed's text says."""
        epochs = [pod.epoch for pod in self._counted() if pod.epoch]
        top = max(epochs, default=0)
        running = self.synced > self.deprecated
        intruded = any(pod.intruded for pod in self.pods.values())
        disturbed = running and (bool(self.broken) or intruded or self._is_shared(self.synced))
        restarting = 0 < self.synced <= self.deprecated
        reached = max(top, self.synced + 1 if disturbed or restarting else self.synced)
        restarts = max(0, reached - 1 - uncounted)
        beyond = restarts > restarts_max and top > self.synced and not self._awaited()
        if beyond or reached > INT32_MAX:
            return Decision(self.synced, self.deprecated, restarts, exceeded=True)
        if (found := self._lost()) is not None:
            return Decision(*found, max(0, found[0] - 1 - uncounted))
        recreate = frozenset() if running or not self.synced else self._completed_jobs()
        if self.synced + 1 in self.vanished:
            return Decision(self.synced + 1, self.synced + 1, restarts, recreate=recreate)
        if top > self.synced and self._all_at(top):
            return Decision(top, self.deprecated, restarts, recreate=recreate)
        deprecated = top - 1 if top > self.synced else self.synced if disturbed else 0
        return Decision(self.synced, max(self.deprecated, deprecated), restarts, recreate=recreate)

    def _believe(self, pod: DumbPod) -> None:
        if pod.view.epoch is not None and pod.view.epoch <= self.synced + 1:
            if pod.view.epoch > pod.epoch and pod.view.life is PodLife.LIVE:
                pod.joined = pod.view.epoch
            pod.epoch = max(pod.epoch, pod.view.epoch)

    def _lost(self) -> tuple[int, int] | None:
        """Read lost S and D from the Pods, when at least two slots are beyond S + 1, or all are at one epoch there."""
        slots = {pod.view.slot for pod in self._counted()}
        alone = [pods[0].view for slot in slots if len(pods := self._in(slot)) == 1]
        ahead = sorted(
            pod.epoch or 0 for pod in alone if pod.life is PodLife.LIVE and (pod.epoch or 0) > self.synced + 1
        )
        if ahead and len(ahead) == self.shape.size and len(set(ahead)) == 1:
            has_ghosts = any(not self.shape.expects(pod.view.slot) for pod in self._occupying())
            return None if has_ghosts else (ahead[0], self.deprecated)
        return (ahead[-2], ahead[-2]) if len(ahead) > 1 else None

    def _in(self, slot: Slot) -> list[DumbPod]:
        return [pod for pod in self._occupying() if pod.view.slot == slot]

    def _counted(self) -> list[DumbPod]:
        pods = self.pods.values()
        return [pod for pod in pods if pod.view.life is PodLife.LIVE and self.shape.expects(pod.view.slot)]

    def _awaited(self) -> list[Slot]:
        """Return the slots of dead workers in which nobody has announced since."""
        dead = [self.pods[uid].view.slot for uid in self.broken if uid in self.pods]
        back = [pod.view.slot for pod in self._occupying() if pod.epoch > self.synced]
        return [slot for slot in dead if self.shape.expects(slot) and slot not in back]

    def _take_census(self) -> None:
        self.census = self.census or (self.synced > 0 and self._slots_at(self.synced) == self.shape.size)

    def _all_at(self, epoch: int) -> bool:
        ghosts = [pod for pod in self._occupying() if not self.shape.expects(pod.view.slot)]
        return not ghosts and self.shape.size > 0 and self._slots_at(epoch) == self.shape.size

    def _occupying(self) -> list[DumbPod]:
        return [pod for pod in self.pods.values() if pod.view.life in (PodLife.LIVE, PodLife.LEAVING)]

    def _slots_at(self, epoch: int) -> int:
        """Count slots whose one occupant is live and at `epoch`."""
        return sum(self._is_at(slot, epoch) for slot in {pod.view.slot for pod in self._counted()})

    def _is_at(self, slot: Slot, epoch: int) -> bool:
        occupants = self._in(slot)
        return len(occupants) == 1 and occupants[0].view.life is PodLife.LIVE and occupants[0].epoch == epoch

    def _is_shared(self, epoch: int) -> bool:
        """Say whether two Pods that may run in one slot joined `epoch`."""
        joined = [pod for pod in self._occupying() if pod.joined == epoch]
        slots = [pod.view.slot for pod in joined if self.shape.expects(pod.view.slot)]
        return len(set(slots)) < len(slots)

    def _completed_jobs(self) -> frozenset[tuple[str, int]]:
        pods = [pod.view for pod in self.pods.values() if pod.view.life is PodLife.SUCCEEDED]
        return frozenset((pod.slot.replicated_job, pod.slot.job_index) for pod in pods if self.shape.expects(pod.slot))
