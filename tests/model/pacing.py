"""
Restarts in vain wait, explored: the real steps of the plan and the real ledger, two Pods, clocks, and leaders.

A tick is half of what a run without steps needs to count as progress: 30 s. Times in a state are ticks from now, so the
same wait later is the same state. The world keeps a record of its own of how often the group failed in vain, and when;
every write of S, and every state in which a leader holds S back, is compared with it. Leaders crash at any moment, an
old one goes on with what it saw last, and another one's clock may be far away. Safety has little to fear, because S
grows later than it could; that it grows at all is checked from every state.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from typing import Any, Final, NamedTuple

from inplace.common.jobset.causes import Cause, Trigger, unix_time
from inplace.common.jobset.furthest_behind import FurthestBehind
from inplace.common.jobset.jobset import JobSet, parse_jobset
from inplace.common.protocol.last_progress import LastProgress
from inplace.common.protocol.pod_view import PodLife, PodView
from inplace.common.protocol.slot import Slot
from inplace.common.wire import names as wire
from inplace.controller.plan.draft import Draft
from inplace.controller.plan.epochs import decide_epochs
from inplace.controller.plan.manual import restart_on_request
from inplace.controller.plan.observed import Observed
from inplace.controller.tracking.group import Group
from tests.common.jobset.test_escalation import time_of
from tests.controller.manifests import jobset as jobset_manifest
from tests.model.explore import Result, explore_world
from tests.model.moves import Explored, Move
from tests.model.rules import broken_by_write

WORKERS: Final = "workers"
START_S: Final = 1_700_000_000
TICK_S: Final = 30
WAITS: Final = (0, 0, 1, 2)  # ticks after so many failures in vain; after more it is the last one
BACKOFF: Final = f"backoff={WAITS[2] * TICK_S},backoff-max={WAITS[3] * TICK_S}"
LONG: Final = 2  # ticks after which a run without steps counts as progress
AFTER: Final = WAITS[3] + 1  # ticks after a failure: by then every wait is over
FAR: Final = 10  # ticks between clocks that have nothing to do with each other
LIMIT: Final = 90  # restarts, and deaths: more than any run has

P1: Final = "P1 the group waits where it should not, or longer than it may"
P2: Final = "P2 S was written before the wait was over"
P3: Final = "P3 the group waits for another clock's time"
P4: Final = "P4 one wait was written twice"


class Pod(NamedTuple):
    """One Pod: the epoch that it announced last (0: none), and in which epoch its worker failed."""

    epoch: int
    failed: int = 0


class Leader(NamedTuple):
    """A controller that believes it leads.

    Args:
        clock: how far it is ahead.
        is_current: it has seen the newest status.
        sign: (trigger, when by its clock) of the first sign since S was synced; "" for none.
    """

    clock: int = 0
    is_current: bool = True
    sign: tuple[str, int] = ("", 0)


class Record(NamedTuple):
    """What the world itself knows; ages in ticks.

    Args:
        failures: in a row without progress.
        best: the highest step at which the group failed.
        step: at which the run ended that restarts; 0: none was told.
        began: the age of the epoch.
        failed: the age of the failure; -1: nothing failed.
        trigger: of the restart that was begun; "" before.
        clock: of the leader that noted the failure.
        held: ticks for which a leader held S back.
        is_told: the wait was written.
        has_other_clock: some leader's clock was not the first one's.
    """

    failures: int = 0
    best: int = 0
    step: int = 0
    began: int = 0
    failed: int = -1
    trigger: str = ""
    clock: int = 0
    held: int = 0
    is_told: bool = False
    has_other_clock: bool = False


class PacingState(NamedTuple):
    """The world."""

    status: str
    pods: tuple[Pod, Pod]
    leaders: tuple[Leader, ...]
    faults: int
    requests: int = 0
    record: Record = Record()


class PacingConfig(NamedTuple):
    """What is explored.

    Args:
        faults: how many of them a run has.
        kinds: of faults, words: worker (exits), lost (a Pod), asked (a person), crash (of a controller), old (leader),
            clock (of another controller).
        tells: the Pods tell steps.
    """

    faults: int
    kinds: str
    tells: bool = False

    def __str__(self) -> str:
        """Return a line of the report."""
        return f"pacing faults={self.faults} {self.kinds}{', tells steps' if self.tells else ''}"


ALL_KINDS: Final = "worker lost asked crash old clock"
PACING_CONFIGS: Final = (
    *(PacingConfig(2, ALL_KINDS, tells) for tells in (False, True)),
    *(
        PacingConfig(3, kinds, tells)
        for kinds in ("worker crash", "worker lost asked", "worker old")
        for tells in (False, True)
    ),
    PacingConfig(3, "worker clock"),
    PacingConfig(4, "worker crash"),
    PacingConfig(5, "worker"),
    PacingConfig(4, "worker", tells=True),
)


def explore_pacing(config: PacingConfig) -> Result:
    """Visit every state of a group that fails again and again."""
    return explore_world(str(config), PacingWorld(config))


class PacingWorld(Explored[PacingState]):
    """Knows every move."""

    def __init__(self, config: PacingConfig) -> None:
        self._config = config
        self._kinds = frozenset(config.kinds.split())
        self._jobset = lru_cache(maxsize=None)(_parse)
        self._planned = lru_cache(maxsize=None)(self._plan)

    def initial(self) -> PacingState:
        """Return a group at work in epoch 1."""
        status = json.dumps(wire.status_of_epochs(1, 0), sort_keys=True)
        return PacingState(status, (Pod(1), Pod(1)), (Leader(),), self._config.faults)

    def is_good(self, state: PacingState) -> bool:
        """Say whether all are at work."""
        synced, deprecated = _epochs(state.status)
        return synced > deprecated and all(pod == (synced, pod.failed) != (synced, synced) for pod in state.pods)

    def broken(self, state: PacingState) -> str:
        """Name the rule that a leader breaks by holding S back, or return ""."""
        record = state.record
        for leader in state.leaders:
            if self._holds(state, leader):
                if leader.clock != record.clock:
                    return P3
                if record.held > WAITS[-1] or (not record.has_other_clock and record.failed >= self._judged(record)[1]):
                    return P1
        return ""

    def moves(self, state: PacingState) -> Iterator[Move[PacingState]]:
        """Yield every move."""
        synced, deprecated = _epochs(state.status)
        yield from self._faulty_moves(state, synced, deprecated)
        for index, pod in enumerate(state.pods):
            if pod.epoch == 0 or (pod.epoch <= synced and (pod.failed == synced or deprecated >= synced)):
                after = _with_pod(state, index, pod._replace(epoch=synced + 1))
                yield Move(f"pod {index} announces {synced + 1}", after, False, "")
        record = state.record
        if record.failed < AFTER if record.failed >= 0 else record.began < LONG and not self._config.tells:
            yield Move("a tick passes", self._later(state), False, "")
        for number, leader in enumerate(state.leaders):
            who = "the leader" if number == 0 else "the old leader"
            if not leader.is_current:
                after = _with_leader(state, number, leader._replace(is_current=True))
                yield Move(f"{who} reads the status", after, False, "")
            elif (planned := self._next(state, leader)) != state.status:
                yield self._written(state, number, planned, who)

    def _faulty_moves(self, state: PacingState, synced: int, deprecated: int) -> Iterator[Move[PacingState]]:
        if not state.faults:
            return
        paid, best, kinds = state._replace(faults=state.faults - 1), state.record.best, self._kinds
        for index, pod in enumerate(state.pods):
            if synced <= deprecated or pod.epoch != synced or pod.failed == synced:
                continue
            for step in sorted({0, best, best + 1}) if self._config.tells else (0,):
                dead = _with_pod(paid, index, pod._replace(failed=synced))
                text = f"pod {index}: worker exits{f' at step {step}' if step else ''}"
                yield Move(text, _seen(dead, Trigger.WORKER_EXIT, step), True, "")
            if "lost" in kinds:
                lost = _with_pod(paid, index, Pod(0))
                yield Move(f"pod {index} is lost, another one comes", _seen(lost, Trigger.POD_LOST), True, "")
        if synced > deprecated and "asked" in kinds:
            yield Move("a person asks for a restart", paid._replace(requests=state.requests + 1), True, "")
        for clock in (0, -FAR, FAR) if "clock" in kinds else (0,):
            yield from self._other_leaders(paid, Leader(clock))

    def _other_leaders(self, paid: PacingState, fresh: Leader) -> Iterator[Move[PacingState]]:
        if fresh.clock != paid.leaders[0].clock:
            paid = paid._replace(record=paid.record._replace(has_other_clock=True))
        where = f", its clock is {fresh.clock} ticks ahead" if fresh.clock else ""
        if self._kinds & {"crash", "clock"}:
            alone = paid._replace(leaders=(fresh, *paid.leaders[1:]))
            yield Move(f"the leader crashes, another one begins{where}", alone, True, "")
        if "old" in self._kinds and len(paid.leaders) == 1:
            both = paid._replace(leaders=(fresh, *paid.leaders))
            yield Move(f"another leader begins{where}, the old one goes on", both, True, "")

    def _later(self, state: PacingState) -> PacingState:
        """Return the world one tick later."""
        record = state.record
        is_held = any(self._holds(state, leader) for leader in state.leaders)
        record = record._replace(
            began=record.began + (not self._config.tells),
            failed=record.failed + (record.failed >= 0),
            held=record.held + is_held,
        )
        leaders = tuple(
            one._replace(sign=(one.sign[0], one.sign[1] - 1)) if one.sign[0] else one for one in state.leaders
        )
        return state._replace(status=_older(state.status), leaders=leaders, record=record)

    def _holds(self, state: PacingState, leader: Leader) -> bool:
        """Say whether a leader knows that all have announced the next epoch, and lets them wait."""
        synced, _ = _epochs(state.status)
        is_there = leader.is_current and all(pod.epoch == synced + 1 for pod in state.pods)
        return is_there and self._next(state, leader) == state.status

    def _next(self, state: PacingState, leader: Leader) -> str:
        """Return the status after one pass of a leader."""
        return self._planned(state.status, state.pods, leader.sign, leader.clock, state.requests, state.record.step)

    def _judged(self, record: Record) -> tuple[int, int]:
        """Return the failures in vain after the one that the record has, and the wait in ticks: what is right."""
        if record.trigger == Trigger.MANUAL.value:
            return 0, 0
        progress = record.step > record.best if self._config.tells else record.began - record.failed >= LONG
        before = 0 if progress else record.failures
        if record.trigger != Trigger.WORKER_EXIT.value:
            return before, 0
        failures = before + 1
        return failures, WAITS[min(failures, len(WAITS) - 1)]

    def _written(self, state: PacingState, number: int, planned: str, who: str) -> Move[PacingState]:
        """Return the move that writes a status."""
        leader, record = state.leaders[number], state.record
        old, new = _epochs(state.status), _epochs(planned)
        was, waits = (json.loads(text).get(wire.CRASH_LOOP) for text in (state.status, planned))
        if not record.trigger and (new[1] >= old[0] or new[0] > old[0]):
            is_wish = _is_request_noted(state.status, planned) and old[0] > old[1]
            trigger, seen = (Trigger.MANUAL.value, leader.clock) if is_wish else leader.sign
            age = leader.clock - seen if trigger else 0
            record = record._replace(trigger=trigger or Trigger.UNKNOWN.value, failed=age, clock=leader.clock)
        rule = broken_by_write(old, new, [pod.epoch for pod in state.pods], LIMIT, LIMIT)
        leaders = [one._replace(is_current=index == number) for index, one in enumerate(state.leaders)]
        if new[0] > old[0]:
            failures, wait = self._judged(record)
            if not rule and record.failed < wait and not record.has_other_clock:
                rule = P2
            best = max(record.best, record.step) if failures else 0
            record = Record(failures, best, has_other_clock=record.has_other_clock)
            leaders = [one._replace(sign=("", 0)) for one in leaders]
        elif waits != was:
            rule = rule or (P4 if record.is_told else "")
            record = record._replace(is_told=True)
        after = state._replace(status=planned, leaders=tuple(leaders), record=record)
        return Move(f"{who} writes S={new[0]} D={new[1]}", after, False, rule)

    def _plan(
        self, status: str, pods: tuple[Pod, Pod], sign: tuple[str, int], clock: int, requests: int, step: int
    ) -> str:
        """Return the status after one pass."""
        jobset = self._jobset(status, requests)
        group = Group(jobset)
        group.open_ledgers(0)
        (scope_ledger,) = group.ledgers.values()
        if sign[0] and scope_ledger.cause is None:
            scope_ledger.cause = Cause(Trigger(sign[0]), _time(sign[1]))
        for index, pod in enumerate(pods):
            slot, epoch = Slot(WORKERS, 0, index), pod.epoch or None
            scope_ledger.ledger.observe(PodView(str(index), slot, epoch, PodLife.LIVE, failed_epoch=pod.failed or None))
        silent = FurthestBehind(("0",), 1, LastProgress(step or None, 0.0))
        observed = Observed(
            jobset,
            _time(clock),
            decisions=group.decisions(),
            causes=group.causes(),
            silent={"": silent} if self._config.tells else {},
        )
        draft = Draft(observed)
        restart_on_request(draft)
        decide_epochs(draft)
        return _text(json.loads(status) | dict(draft.finish().status))


def _parse(status: str, requests: int) -> JobSet:
    manifest = jobset_manifest(restarts_max=LIMIT)
    annotations = {wire.FAILURES: BACKOFF}
    if requests:
        annotations[wire.RESTART_REQUESTED] = str(requests)
    manifest["metadata"] |= {"uid": "js", "resourceVersion": "1", "annotations": annotations}
    return parse_jobset(manifest | {"status": _with_times(json.loads(status), _time)})


# What decides nothing (words, names, times that are told only) would multiply the states.
_KEPT: Final = (
    *(wire.SYNCED_EPOCH, wire.DEPRECATED_EPOCH, wire.CURRENT_ATTEMPT, wire.PREVIOUS_ATTEMPT, wire.EXEMPT_EPOCHS),
    *(wire.LAST_EXEMPT_EPOCH, wire.LAST_RESTART_REQUEST, wire.CRASH_LOOP, wire.LAST_GROUP_RESTART, "terminalState"),
)
_TIMES: Final = ("startedAt", "until", "syncedAt")
_TOLD: Final = ("since", "firstFailure", "firstSilent", "request")


def _text(status: Mapping[str, Any]) -> str:
    """Return a status with its times as ticks, without what decides nothing."""
    kept = {name: status[name] for name in _KEPT if status.get(name)}
    if "syncedAt" in kept.get(wire.LAST_GROUP_RESTART, {}):
        del kept[wire.LAST_GROUP_RESTART]  # it is over
    for name in (wire.LAST_GROUP_RESTART, wire.CRASH_LOOP):
        if name in kept:
            kept[name] = {field: value for field, value in kept[name].items() if field not in _TOLD}
    return json.dumps(_with_times(kept, _ticks), sort_keys=True)


def _with_times(status: Mapping[str, Any], change: Any) -> dict[str, Any]:
    """Return a status with its times in another form."""
    changed = dict(status)
    for name in (wire.LAST_GROUP_RESTART, wire.CRASH_LOOP):
        if name in changed:
            fields = changed[name]
            changed[name] = fields | {field: change(fields[field]) for field in _TIMES if field in fields}
    return changed


@cache
def _older(status: str) -> str:
    """Return a status one tick later; a wait that has long passed is as good as any other."""
    return json.dumps(_with_times(json.loads(status), lambda ticks: max(ticks - 1, -2 * FAR)), sort_keys=True)


@cache
def _epochs(status: str) -> tuple[int, int]:
    return wire.epochs_of_status(json.loads(status))


def _time(ticks: int) -> str:
    return time_of(START_S + TICK_S * ticks)


def _ticks(text: str | int) -> int:
    if isinstance(text, int):
        return text
    time_s = unix_time(text)
    assert time_s is not None, text
    return round((time_s - START_S) / TICK_S)


def _is_request_noted(status: str, planned: str) -> bool:
    before, after = (json.loads(text).get(wire.LAST_RESTART_REQUEST) for text in (status, planned))
    return bool(before != after)


def _seen(state: PacingState, trigger: Trigger, step: int = 0) -> PacingState:
    """Let every controller see the first sign of a restart."""
    leaders = tuple(one if one.sign[0] else one._replace(sign=(trigger.value, one.clock)) for one in state.leaders)
    record = state.record
    if record.failed < 0:
        record = record._replace(failed=0, step=step)
    return state._replace(leaders=leaders, record=record)


def _with_pod(state: PacingState, index: int, pod: Pod) -> PacingState:
    other = state.pods[1 - index]
    return state._replace(pods=(min(pod, other), max(pod, other)))  # which of them is which changes nothing


def _with_leader(state: PacingState, number: int, leader: Leader) -> PacingState:
    leaders = list(state.leaders)
    leaders[number] = leader
    return state._replace(leaders=tuple(leaders))
