"""The whole world as one small tuple of numbers, and every move it can make."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import permutations
from math import factorial

from inplace.common.protocol.lease import fenced_in_s
from tests.model.controllers import Controllers, Observation
from tests.model.leases import Over, a_tick_older, is_waited_for, over_since, without_the_past
from tests.model.memo import Interned, memo
from tests.model.moves import Explored, Move
from tests.model.pods import (
    COMPLETE,
    CUT,
    FENCE,
    HEALS,
    LEAVING,
    LIVE,
    NO_WORKER,
    Config,
    SlotState,
    at_place,
    running_epochs,
)
from tests.model.rules import F1, INVARIANT, S1, S3_NOW, S5, S8, Epochs, Version, broken_by_write
from tests.model.slots import SlotMoves
from tests.model.statuses import Statuses, spoiled

# (versions, leader's ledger, old leader's ledger + 1 or 0, faults left, deaths, failed, waited, over, slot, slot, ...)
# `waited` is for how many ticks each of the two has known that every epoch so far is over, up to FENCE; `over` is for
# how many ticks which epochs have been over.
State = tuple[int, ...]
Order = tuple[int, ...]  # of slots
FIRST_SLOT = 8
DEADLY = frozenset({"agent", "worker", "replace"})  # the faults that cost a group restart
CUT_COST = 3  # a worker that is fenced, a Pod that is replaced, and an epoch that is skipped for it


class World(Explored[State]):
    """Expands states; everything that repeats is computed once and interned."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._last_slot = FIRST_SLOT + config.slots - config.ghosts  # ghosts come after the expected slots
        self._slot_moves = SlotMoves(config)
        self._controllers = Controllers(config)
        self._read = Statuses().read
        self._versions = Interned[tuple[Version, ...]]()
        self._overs = Interned[Over]()
        self._slots = Interned[SlotState]()
        self._running: list[int] = []  # for each slot, the epochs whose workers run
        self._sights: list[int] = []  # for each slot, what controllers see of it
        self._kinds: list[int] = []  # for each slot, what has happened to it
        self._histories = Interned[SlotState]()  # of slots, as if each had number 0

    def initial(self) -> State:
        """Return N Pods that have just started (with ghosts or a fence: at work), and a controller that listed them."""
        is_at_work = self.config.ghosts or self.config.fence
        status = (0, 1, 0) if is_at_work else (0, 0, 0)
        make = self._slot_moves.at_work if is_at_work else self._slot_moves.first
        slots = tuple(self._intern_slot(make(index)) for index in range(self.config.slots))
        leader = self._listed(slots, self._read(status))
        return (
            self._versions.number((status,)),
            leader,
            0,
            self.config.faults,
            0,
            0,
            0,
            self._overs.number(()),
            *slots,
        )

    def broken(self, state: State) -> str:
        """Name the rule that `state` itself breaks, or return ""."""
        mask = 0
        running = self._running
        for slot in state[FIRST_SLOT:]:
            mask |= running[slot]
        if mask & (mask - 1):
            return S1
        return F1 if self.config.fence and self._runs_behind_its_fence(state) else ""

    def _runs_behind_its_fence(self, state: State) -> bool:
        fenced = set(self._controllers.known(state[1]).fenced)
        if state[2]:
            fenced |= set(self._controllers.known(state[2] - 1).fenced)
        leaving = [self._slots[number].leaving for number in state[FIRST_SLOT:]] if fenced else []
        return any(pod is not None and pod.uid in fenced and pod.worker != NO_WORKER for pod in leaving)

    def is_good(self, state: State) -> bool:
        """Say whether the group has come together: all at work at S or completed, or the JobSet failed."""
        if state[5]:
            return True
        synced, deprecated = self._read(self._versions[state[0]][-1])
        if synced <= deprecated:
            return False
        for number in state[FIRST_SLOT : self._last_slot]:
            pod = self._slots[number].live
            if pod is None:
                return False
            at_work = self._slot_moves.is_lifted(pod) and pod.worker == (synced, "running")
            if not at_work and pod.life != COMPLETE:
                return False
        return True

    def canonical(self, state: State) -> State:
        """Forget the past, and put the slots in order: nothing tells one from another but what has happened to it."""
        if self.config.fence:
            state = self._without_the_past(state)
        before = -1
        for number in state[FIRST_SLOT : self._last_slot]:
            kind = self._kinds[number]
            if kind <= before:
                return min(self._ordered(state, order) for order in sorting(self._pattern(state)))
            before = kind
        return state

    def alike(self, state: State) -> int:
        """Return in how many ways the slots of a state could be numbered."""
        slots = state[FIRST_SLOT : self._last_slot]
        if len({self._kinds[number] for number in slots}) == len(slots):
            return factorial(len(slots))
        return len({self._ordered(state, order) for order in permutations(range(len(slots)))})

    def _pattern(self, state: State) -> Order:
        """Return for each slot how many come before it in order; two that have the same past stand side by side."""
        kinds = [self._kinds[number] for number in state[FIRST_SLOT : self._last_slot]]
        return tuple(map(sorted(kinds).index, kinds))

    def _ordered(self, state: State, order: Order) -> State:
        """Return a state with its slots in another order: the number that each has now."""
        places = (*map(order.index, range(len(order))), *range(len(order), self.config.slots))
        leader, old_leader = self._controllers.moved(state[1], places), 0
        if state[2]:
            old_leader = self._controllers.moved(state[2] - 1, places) + 1
        slots = (self._slot_at(state[FIRST_SLOT + number], place) for place, number in enumerate(order))
        return (state[0], leader, old_leader, *state[3:FIRST_SLOT], *slots, *state[self._last_slot :])

    @memo
    def _slot_at(self, number: int, place: int) -> int:
        """Return a slot with another number."""
        return self._intern_slot(at_place(self._slots[number], place))

    def _without_the_past(self, state: State) -> State:
        """Drop from a state for how long epochs have been over that no Pod is in."""
        over = self._present(state[7:])
        return state if over == state[7] else (*state[:7], over, *state[FIRST_SLOT:])

    @memo
    def _present(self, times: tuple[int, ...]) -> int:
        """Return what is over (the first number) without what no Pod of the slots (the others) is in."""
        return self._overs.number(without_the_past(self._overs[times[0]], [self._slots[at] for at in times[1:]]))

    def moves(self, state: State) -> Iterator[Move[State]]:
        """Yield every move of `state`."""
        versions, leader, old_leader, left, deaths, failed, waited, over = state[:FIRST_SLOT]
        if failed:
            return
        for position in range(FIRST_SLOT, len(state)):
            number = state[position]
            before, after = state[FIRST_SLOT:position], state[position + 1 :]
            for text, slot, kind, rule in self._moves_of_slot(number, versions, over):
                if kind in ("", HEALS):
                    yield Move(text, (*state[:position], slot, *after), kind == HEALS, rule)
                elif left:
                    died = deaths + (CUT_COST if kind == CUT else kind in DEADLY)
                    target = (versions, leader, old_leader, left - 1, died, 0, waited, over, *before, slot, *after)
                    yield Move(text, target, True, rule)
            for text, ledger, repeated in self._observations(leader, number):
                yield Move(f"controller: {text}", (versions, ledger, *state[2:]), repeated, "")
            if old_leader and self.config.old_watches:
                for text, ledger, _ in self._observations(old_leader - 1, number):
                    yield Move(f"old leader: {text}", (versions, leader, ledger + 1, *state[3:]), True, "")
        if self.config.fence:
            yield from self._time_passes(state)
        yield from self._spoiling_moves(state)
        yield from self._leader_moves(state)
        if old_leader:
            yield from self._controller_moves(state, 2, "old leader")
            yield Move("old leader: stops", (versions, leader, 0, *state[3:]), False, "")

    def _time_passes(self, state: State) -> Iterator[Move[State]]:
        """Let a tick pass, where nothing is due before it."""
        if any(self._is_waited_for(number, state[7]) for number in state[FIRST_SLOT:]):
            return
        over = self._overs[state[7]]
        waited = [min(FENCE, ticks + 1) for ticks in divmod(state[6], FENCE + 1)]
        times = (waited[0] * (FENCE + 1) + waited[1], self._overs.number(a_tick_older(over)))
        after = self._waiting((*state[:6], *times, *state[FIRST_SLOT:]), state)
        if after != state:
            yield Move("time passes", after, False, "")

    @memo
    def _is_waited_for(self, number: int, over: int) -> bool:
        """Say whether time stands still for a Pod of a slot."""
        slot = self._slots[number]
        return any(is_waited_for(pod, self._overs[over]) for pod in (slot.live, slot.leaving))

    def _waiting(self, state: State, before: State) -> State:
        """Return a state in which a controller has waited only if it has known of no running epoch meanwhile."""
        if not self.config.fence:
            return state
        waited = list(divmod(state[6], FENCE + 1))
        for which, position in enumerate((1, 2)):
            if not (self._is_over(state, position) and self._is_over(before, position)):
                waited[which] = 0
        return (*state[:6], waited[0] * (FENCE + 1) + waited[1], *state[7:])

    def _is_over(self, state: State, position: int) -> bool:
        """Say whether a controller knows that every epoch so far is over."""
        number = state[position] - (position - 1)
        if number < 0:
            return False
        synced, deprecated = self._controllers.known(number).status
        return deprecated >= synced

    def _fences(self, state: State, position: int, name: str) -> Iterator[Move[State]]:
        """Let a controller count a Pod that leaves as gone, when it has waited long enough for its worker's end."""
        number = state[position] - (position - 1)
        waited = divmod(state[6], FENCE + 1)[position - 1]
        if not self._is_over(state, position) or fenced_in_s(0, FENCE, waited) > 0:
            return
        for uid in self._controllers.known(number).leaving:
            fenced = self._controllers.fenced(number, uid)
            yield Move(f"{name}: fences pod {uid}", self._with_ledger(state, position, fenced), False, "")

    def _spoiling_moves(self, state: State) -> Iterator[Move[State]]:
        """Let a person spoil the status; where no other fault costs a restart, this may cost none either."""
        versions, kinds = self._versions[state[0]], self.config.kinds
        for text, version, cost in spoiled(versions, kinds) if state[3] else ():
            spoilt = self._versions.number((*versions, version)[-self.config.stale :])
            deaths = state[4] + (cost if kinds & (DEADLY | {"torn"}) else 0)
            yield Move(text, (spoilt, *state[1:3], state[3] - 1, deaths, *state[5:]), True, "")

    def _leader_moves(self, state: State) -> Iterator[Move[State]]:
        yield from self._controller_moves(state, 1, "controller")
        kinds, left = self.config.kinds, state[3]
        if not left or not kinds & {"controller", "handover"}:
            return
        listed = self._listed(state[FIRST_SLOT:], self._read(self._versions[state[0]][-1]))
        # A new leader fences a ghost anew, and so skips an epoch anew for one that went on announcing.
        deaths = state[4] + self.config.fence
        if "controller" in kinds:
            text = "controller: dies; the next one lists everything"
            target = (state[0], listed, state[2], left - 1, deaths, state[5], state[6] % (FENCE + 1), *state[7:])
            yield Move(text, target, True, "")
        if "handover" in kinds and not state[2]:
            text = "controller: loses its lease without noticing; the next one lists everything"
            target = (state[0], listed, state[1] + 1, left - 1, deaths, state[5], state[6] // (FENCE + 1), *state[7:])
            yield Move(text, target, True, "")

    def _controller_moves(self, state: State, position: int, name: str) -> Iterator[Move[State]]:
        number = state[position] - (position - 1)
        known = self._controllers.known(number)
        versions = self._versions[state[0]]
        now, decision = self._read(versions[-1]), known.decision
        if decision is None:
            yield Move(f"{name}: decides", state, False, INVARIANT)
            return
        learned = self._controllers.learn(number, now)
        if learned != number:
            yield Move(f"{name}: sees S={now[0]} D={now[1]}", self._with_ledger(state, position, learned), False, "")
            if "conflict" not in self.config.dropped:
                return
        if self.config.fence:
            yield from self._fences(state, position, name)
        if decision.exceeded:
            rule = S8 if decision.restarts <= self.config.restarts_max else ""
            text = f"{name}: fails the JobSet after {decision.restarts - 1} restarts"
            yield Move(text, (*state[:5], 1, *state[6:]), False, rule)
            return
        want = (decision.synced, decision.deprecated)
        is_behind = learned == number and want != versions[-1][1:]  # the status was lost, or is read as another one
        if want != known.status or is_behind:
            yield from self._write(state, position, number, want, name)
        elif len(known.ahead) == 1 < self.config.slots and "lost" in self.config.kinds and learned == number:
            yield from self._delete(state, known.ahead[0])
        for _, job in decision.recreate:
            yield from self._recreate(state, job, known.completed, name)

    def _delete(self, state: State, uid: str) -> Iterator[Move[State]]:
        """Delete the one Pod that is ahead of all others, as a person or the barrier's deadline does later."""
        for position in range(FIRST_SLOT, self._last_slot):
            slot = self._slots[state[position]]
            if slot.live is not None and slot.live.uid == uid and slot.live.life == LIVE and slot.leaving is None:
                gone = self._intern_slot(slot._replace(live=None, leaving=slot.live._replace(life=LEAVING)))
                target = (*state[:4], state[4] + 1, *state[5:position], gone, *state[position + 1 :])
                yield Move(f"somebody deletes pod {uid}, which is alone ahead", target, False, "")

    def _write(self, state: State, position: int, number: int, want: Epochs, name: str) -> Iterator[Move[State]]:
        """Write the status; the writer learns it from the answer, or later when that is lost."""
        versions = self._versions[state[0]]
        announced = [self._slots[slot].announced for slot in state[FIRST_SLOT : self._last_slot]]
        life, *epochs = versions[-1]
        was = (epochs[0], epochs[1])
        rule = broken_by_write(was, want, announced, self.config.restarts_max, state[4])
        is_sync = want[0] > max(want[1], was[0], self._controllers.known(number).status[0])
        if not rule and is_sync and not self._is_together(state, number, want[0]):
            rule = S3_NOW
        recent = (*versions, (life, *want))[-self.config.stale :]
        written = (self._versions.number(recent), *state[1:7], self._over_since(state[7], recent[-1]), *state[8:])
        text = f"{name}: writes S={want[0]} D={want[1]}"
        yield Move(text, self._with_ledger(written, position, self._controllers.learn(number, want)), False, rule)
        if "write" in self.config.kinds and state[3]:
            yield Move(f"{text}, the answer is lost", (*written[:3], state[3] - 1, *written[4:]), True, rule)

    def _is_together(self, state: State, number: int, epoch: int) -> bool:
        """Say whether every slot is live and alone at `epoch`; a controller that lags may be wrong."""
        for slot_number in state[FIRST_SLOT:]:
            if any(not repeated for _, _, repeated in self._observations(number, slot_number)):
                return True
            slot = self._slots[slot_number]
            if slot.number >= self.config.slots - self.config.ghosts:
                if slot.leaving is not None or (slot.live is not None and slot.live.life != COMPLETE):
                    return False
                continue
            if slot.live is None or slot.live.annotation < epoch:
                return False
            if slot.leaving is not None and not (self.config.fence and slot.leaving.worker == NO_WORKER):
                return False
            if slot.live.annotation > epoch and not self._versions[state[0]][-1][0]:
                return False  # only where the status was lost may a Pod be beyond the epoch that is synced
        return True

    def _recreate(
        self, state: State, job: int, completed: tuple[tuple[int, str], ...], name: str
    ) -> Iterator[Move[State]]:
        """Delete a Job by its UID, as the controller knows it; its Pod goes, the next Job makes another."""
        uids = [uid for slot, uid in completed if slot == job]
        position = FIRST_SLOT + job
        slot = self._slots[state[position]]
        pod = slot.live
        synced, deprecated = self._read(self._versions[state[0]][-1])
        if not uids or deprecated < synced or (pod is not None and pod.uid in uids and pod.life != COMPLETE):
            yield Move(f"{name}: recreates Job {job}", state, False, S5)
        elif pod is not None and pod.life != COMPLETE and "uid" in self.config.dropped:
            yield Move(f"{name}: deletes the new Job {job}", state, False, S5)
        elif pod is not None and pod.uid in uids:
            empty = self._intern_slot(slot._replace(live=None))
            yield Move(f"{name}: recreates Job {job}", (*state[:position], empty, *state[position + 1 :]), False, "")

    def _with_ledger(self, state: State, position: int, ledger: int) -> State:
        return self._waiting((*state[:position], ledger + position - 1, *state[position + 1 :]), state)

    @memo
    def _moves_of_slot(self, number: int, versions: int, over: int) -> tuple[tuple[str, int, str, str], ...]:
        kinds, slot = {"", HEALS, *self.config.kinds}, self._slots[number]
        return tuple(
            (text, self._intern_slot(moved), kind, rule)
            for text, moved, kind, rule in self._slot_moves.moves(slot, self._versions[versions], self._overs[over])
            if kind in kinds
        )

    def _observations(self, ledger: int, number: int) -> tuple[Observation, ...]:
        return self._controllers.observations(ledger, self._sights[number])

    def _listed(self, slots: tuple[int, ...], status: Epochs) -> int:
        """Return the ledger of a controller that listed everything consistently."""
        ledger = self._controllers.empty(status)
        for number in slots:
            ledger = self._controllers.caught_up(ledger, self._sights[number])
        return ledger

    def _intern_slot(self, slot: SlotState) -> int:
        number = self._slots.number(slot)
        if number == len(self._kinds):
            self._running.append(running_epochs(slot, supervisor=self.config.supervisor))
            self._sights.append(self._controllers.sight(slot))
            self._kinds.append(self._histories.number(at_place(slot, 0)))
        return number

    def _over_since(self, over: int, now: Version) -> int:
        return self._overs.number(over_since(self._overs[over], now)) if self.config.fence else over


@cache
def sorting(pattern: Order) -> tuple[Order, ...]:
    """Return every order in which a pattern is sorted."""
    orders = permutations(range(len(pattern)))
    return tuple(order for order in orders if [pattern[at] for at in order] == sorted(pattern))
