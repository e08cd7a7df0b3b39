"""Every controller of the world: production Ledgers, interned, and the moves they make."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from inplace.common.protocol.errors import InvariantError
from inplace.common.protocol.ledger import Ledger
from inplace.common.protocol.pod_view import PodLife, PodView, Worker
from inplace.common.protocol.slot import Shape, Slot
from tests.model.frozen import Frozen, Places, check_fields, freeze, moved, thaw
from tests.model.pods import COMPLETE, FAILED, LEAVING, LIVE, RUNNING, Config, Pod, SlotState
from tests.model.rules import Epochs

JOBS: Final = "workers"
Observation = tuple[str, int, bool]  # text, next ledger, repeated


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
        self._frozen: list[Frozen] = []
        self._numbers: dict[Frozen, int] = {}
        self._known: list[Known] = []
        self._learned: dict[tuple[int, Epochs], int] = {}
        self._views: list[dict[str, Any]] = []
        self._empty: dict[Epochs, int] = {}
        self._moved: dict[tuple[int, Places], int] = {}

    def known(self, number: int) -> Known:
        """Return the decision of ledger `number`."""
        return self._known[number]

    def learn(self, number: int, status: Epochs) -> int:
        """Return the ledger after it learnt `status`."""
        key = (number, status)
        if key not in self._learned:
            ledger = self._thaw(number)
            ledger.learn(*status)
            self._learned[key] = self._intern(ledger)
        return self._learned[key]

    def observations(self, number: int, slot: SlotState) -> tuple[Observation, ...]:
        """Return every Pod event of `slot` that changes this controller's ledger.

        A repeated event (a resync, a change elsewhere in the Pod) may come, but no decision may depend on it.
        """
        return tuple(self._observe(number, slot))

    def fenced(self, number: int, uid: str) -> int:
        """Return the ledger for which the worker of a Pod that leaves has ended."""
        ledger = self._thaw(number)
        ledger.fence(uid)
        return self._intern(ledger)

    def empty(self, status: Epochs) -> int:
        """Return the ledger of a controller that has just started."""
        if status not in self._empty:
            self._empty[status] = self._intern(Ledger(self.shape, *status))
        return self._empty[status]

    def moved(self, number: int, places: Places) -> int:
        """Return the ledger that has seen the same of slots with other numbers."""
        found = self._moved.get((number, places))
        if found is None:
            found = self._moved[number, places] = self._number(moved(self._frozen[number], places))
        return found

    def caught_up(self, number: int, slot: SlotState) -> int:
        """Return the ledger after it saw everything of `slot`."""
        for _, event in self._unseen(number, slot):
            number = self._after(number, event)
        return number

    def _observe(self, number: int, slot: SlotState) -> Iterator[Observation]:
        """Yield the ledgers after the events of a slot, in order, with some lag."""
        events = self._unseen(number, slot)
        if events and "order" not in self.config.dropped:
            after = number
            for _, event in events:
                after = self._after(after, event)
            yield ", ".join(text for text, _ in events), after, False
            return
        for text, event in events:
            yield text, self._after(number, event), False
        for pod in (slot.leaving, slot.live):
            if pod is not None and (after := self._after(number, self._view(slot.number, pod))) != number:
                yield f"sees pod {pod.uid} again", after, True

    def _unseen(self, number: int, slot: SlotState) -> list[tuple[str, Any]]:
        """Return the events of a slot that a ledger has not seen, in order; a uid stands for its end."""
        views = self._views[number]
        pods = [pod for pod in (slot.leaving, slot.live) if pod is not None]
        present = {pod.uid for pod in pods}
        gone = [uid for uid in views if uid not in present and uid.startswith(f"{slot.number}.")]
        changed = [(pod, view) for pod in pods if views.get(pod.uid) != (view := self._view(slot.number, pod))]
        return [(f"sees that pod {uid} is gone", uid) for uid in gone] + [
            (f"sees pod {pod.uid} {_shown(pod)}", view) for pod, view in changed
        ]

    def _after(self, number: int, event: Any) -> int:
        ledger = self._thaw(number)
        if isinstance(event, str):
            ledger.forget(event)
        else:
            ledger.observe(event)
        return self._intern(ledger)

    def _view(self, index: int, pod: Pod) -> PodView:
        """Return the Pod as a watch event shows it."""
        epoch, state = pod.reported
        # `epoch` stands for the run of the container: an epoch's worker, or a supervisor's process.
        worker = Worker(f"{pod.uid}/{epoch}" if epoch else "", state == RUNNING, state == FAILED)
        lives = {LIVE: PodLife.LIVE, LEAVING: PodLife.LEAVING, COMPLETE: PodLife.SUCCEEDED}
        slot, told = Slot(JOBS, index, 0), pod.failed or None
        epoch_told = pod.annotation or None
        return PodView(pod.uid, slot, epoch_told, lives[pod.life], worker, failed_epoch=told, given_up=pod.given_up)

    def _thaw(self, number: int) -> Any:
        return thaw(self.shape, self._frozen[number])

    def _intern(self, ledger: Any) -> int:
        return self._number(freeze(ledger))

    def _number(self, frozen: Frozen) -> int:
        number = self._numbers.get(frozen)
        if number is None:
            number = self._numbers[frozen] = len(self._frozen)
            self._frozen.append(frozen)
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


def _shown(pod: Pod) -> str:
    """Return a Pod as a trace shows it."""
    epoch, state = pod.reported
    worker = f", worker of epoch {epoch} {state}" if epoch else ""
    worker += f", told of a death in epoch {pod.failed}" if pod.failed else ""
    return f"{pod.life} at epoch {pod.annotation or '-'}{worker}"
