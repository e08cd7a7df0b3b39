"""Every controller of the world: production Ledgers, interned, and the moves they make."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from inplace.common.protocol.errors import InvariantError
from inplace.common.protocol.ledger import Ledger
from inplace.common.protocol.pod_view import PodLife, PodView, Worker
from inplace.common.protocol.slot import Shape, Slot
from tests.model.frozen import Frozen, Places, check_fields, freeze, moved, thaw
from tests.model.memo import Interned, memo
from tests.model.pods import COMPLETE, FAILED, LEAVING, LIVE, RUNNING, SUCCEEDED, Config, Pod, SlotState
from tests.model.rules import Epochs

JOBS: Final = "workers"
Observation = tuple[str, int, bool]  # text, next ledger, repeated


class Sight(NamedTuple):
    """A slot as watch events show it."""

    slot: int
    pods: tuple[PodView, ...]  # the one that leaves first


class Known(NamedTuple):
    """One ledger's decision, computed once."""

    status: Epochs
    decision: Any  # Decision; None when production code raised
    completed: tuple[tuple[int, str], ...]  # (slot, uid) of completed Pods
    ahead: tuple[str, ...]  # uids of Pods that are set aside
    leaving: tuple[str, ...]  # uids of Pods that leave and are still waited for
    fenced: tuple[str, ...]  # uids of those whose worker counts as ended


class Controllers:
    """Interns ledgers: a controller in a state is one number."""

    def __init__(self, config: Config) -> None:
        check_fields()
        self.config = config
        self.shape = Shape({JOBS: (config.slots - config.ghosts, 1)})
        self._frozen = Interned[Frozen]()
        self._sights = Interned[Sight]()
        self._known: list[Known] = []
        self._views: list[dict[str, Any]] = []

    def known(self, number: int) -> Known:
        """Return the decision of ledger `number`."""
        return self._known[number]

    def sight(self, slot: SlotState) -> int:
        """Return the number of what watch events show of a slot."""
        pods = tuple(_view(slot.number, pod) for pod in (slot.leaving, slot.live) if pod is not None)
        return self._sights.number(Sight(slot.number, pods))

    @memo
    def learn(self, number: int, status: Epochs) -> int:
        """Return the ledger after it learnt `status`."""
        ledger = self._thaw(number)
        ledger.learn(*status)
        return self._intern(ledger)

    @memo
    def observations(self, number: int, sight: int) -> tuple[Observation, ...]:
        """Return every Pod event of a slot that changes this controller's ledger.

        A repeated event (a resync, a change elsewhere in the Pod) may come, but no decision may depend on it.
        """
        return tuple(self._observe(number, sight))

    def fenced(self, number: int, uid: str) -> int:
        """Return the ledger for which the worker of a Pod that leaves has ended."""
        ledger = self._thaw(number)
        ledger.fence(uid)
        return self._intern(ledger)

    @memo
    def empty(self, status: Epochs) -> int:
        """Return the ledger of a controller that has just started."""
        return self._intern(Ledger(self.shape, *status))

    @memo
    def moved(self, number: int, places: Places) -> int:
        """Return the ledger that has seen the same of slots with other numbers."""
        return self._number(moved(self._frozen[number], places))

    @memo
    def caught_up(self, number: int, sight: int) -> int:
        """Return the ledger after it saw everything of a slot."""
        for _, event in self._unseen(number, sight):
            number = self._after(number, event)
        return number

    def _observe(self, number: int, sight: int) -> Iterator[Observation]:
        """Yield the ledgers after the events of a slot, in order, with some lag."""
        events = self._unseen(number, sight)
        if events and "order" not in self.config.dropped:
            after = number
            for _, event in events:
                after = self._after(after, event)
            yield ", ".join(text for text, _ in events), after, False
            return
        for text, event in events:
            yield text, self._after(number, event), False
        for view in self._sights[sight].pods:
            if (after := self._after(number, view)) != number:
                yield f"sees pod {view.uid} again", after, True

    def _unseen(self, number: int, sight: int) -> list[tuple[str, Any]]:
        """Return the events of a slot that a ledger has not seen, in order; a uid stands for its end."""
        views, (slot, pods) = self._views[number], self._sights[sight]
        present = {view.uid for view in pods}
        gone = [uid for uid in views if uid not in present and uid.startswith(f"{slot}.")]
        changed = [view for view in pods if views.get(view.uid) != view]
        return [(f"sees that pod {uid} is gone", uid) for uid in gone] + [
            (f"sees pod {view.uid} {_shown(view)}", view) for view in changed
        ]

    @memo
    def _after(self, number: int, event: Any) -> int:
        ledger = self._thaw(number)
        if isinstance(event, str):
            ledger.forget(event)
        else:
            ledger.observe(event)
        return self._intern(ledger)

    def _thaw(self, number: int) -> Any:
        return thaw(self.shape, self._frozen[number])

    def _intern(self, ledger: Any) -> int:
        return self._number(freeze(ledger))

    def _number(self, frozen: Frozen) -> int:
        number = self._frozen.number(frozen)
        if number == len(self._known):
            ledger = thaw(self.shape, frozen)
            self._known.append(self._read(ledger))
            self._views.append({uid: record.pod for uid, record in ledger._records.items()})
        return number

    def _read(self, ledger: Any) -> Known:
        try:
            decision = ledger.decide(restarts_max=self.config.restarts_max)
        except InvariantError:
            decision = None
        completed = tuple(
            (record.pod.slot.job_index, uid)
            for uid, record in ledger._records.items()
            if record.pod.life is PodLife.SUCCEEDED
        )
        leaving = {uid: each.fenced for uid, each in ledger._records.items() if each.pod.life is PodLife.LEAVING}
        return Known(
            (ledger.synced, ledger.deprecated),
            decision,
            completed,
            tuple(sorted(ledger._ahead)),
            tuple(uid for uid, is_fenced in leaving.items() if not is_fenced),
            tuple(uid for uid, is_fenced in leaving.items() if is_fenced),
        )


def _view(index: int, pod: Pod) -> PodView:
    """Return a Pod as a watch event shows it."""
    epoch, state = pod.reported
    # `epoch` stands for the run of the container: an epoch's worker, or a supervisor's process.
    worker = Worker(f"{pod.uid}/{epoch}" if epoch else "", state == RUNNING, state == FAILED)
    lives = {LIVE: PodLife.LIVE, LEAVING: PodLife.LEAVING, COMPLETE: PodLife.SUCCEEDED}
    slot, told = Slot(JOBS, index, 0), pod.failed or None
    epoch_told = pod.annotation or None
    return PodView(pod.uid, slot, epoch_told, lives[pod.life], worker, failed_epoch=told, given_up=pod.given_up)


def _shown(view: PodView) -> str:
    """Return a Pod as a trace shows it."""
    worker = ""
    if view.worker.instance:
        state = RUNNING if view.worker.running else FAILED if view.worker.failed else SUCCEEDED
        worker = f", worker of epoch {view.worker.instance.rpartition('/')[2]} {state}"
    worker += f", told of a death in epoch {view.failed_epoch}" if view.failed_epoch else ""
    return f"{view.life.value} at epoch {view.epoch or '-'}{worker}"
