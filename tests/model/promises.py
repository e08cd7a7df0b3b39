"""
One Pod whose agent keeps a lease, explored: no worker runs for longer than promised after its epoch was over.

What `tests.model.leases` takes for granted is shown here of production's supervisor and of `common.protocol.lease`.
Reads of the JobSet are sent at any time, and answered at any time or never: a Pod that is cut off is one whose reads,
PATCHes and watch bring nothing. An answer shows any status since the read was sent. The watch may be late by as much as
it likes, and somebody writes any next status at any time.

Not modelled: an agent that dies. A supervisor's worker dies with the container whose main process it is, and that a
guard's worker ends `tests.model.guarded_pods` shows. Nor a status that is lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from inplace.common.protocol.agent import Lease, View
from inplace.common.protocol.lease import renewed_until_s
from tests.model.explore import Result
from tests.model.leases import Over, a_tick_older, leased_epoch, over_for, over_since, without_the_past
from tests.model.pods import FENCE, LEASE, NO_WORKER, RUNNING, Config, Pod, SlotState
from tests.model.rules import F2, Version
from tests.model.search import search
from tests.model.slots import SlotMoves, settled
from tests.model.statuses import Statuses
from tests.model.supervisors import SupervisorMoves

EPOCHS_MAX: Final = 2  # of one exploration: the first one is over, the second is synced, over or skipped
CONFIG: Final = Config(1, 0, frozenset({"worker", "patch"}), supervisor=True, fence=True)


class Read(NamedTuple):
    """A consistent read that is out: the newest status when it was sent, and the ticks since."""

    sent: Version
    age: int


class LeasedPod(NamedTuple):
    """A Pod with a lease.

    Args:
        slot: with its Pod.
        versions: every status that was ever stored, the newest last.
        over: for how many ticks each epoch has been over, up to what was promised.
        left: for how many ticks the worker may run, as the agent's clock says.
        read: the one that is out.
    """

    slot: SlotState
    versions: tuple[Version, ...]
    over: Over = ()
    left: int = LEASE
    read: Read | None = None
    rule: str = ""


Move = tuple[str, LeasedPod]


class LeaseWorld:
    """Knows every move of such a Pod."""

    def __init__(self) -> None:
        self._slots = SlotMoves(CONFIG)
        self._supervised = SupervisorMoves(CONFIG)
        self._status = Statuses().read

    def first(self) -> LeasedPod:
        """Return a Pod at work in epoch 1, with a whole lease."""
        return LeasedPod(self._slots.at_work(0), ((0, 1, 0),))

    def moves(self, state: LeasedPod) -> Iterator[Move]:
        """Yield every move."""
        for text, after in self._all_moves(state):
            yield text, _present(after)

    def _all_moves(self, state: LeasedPod) -> Iterator[Move]:
        yield from self._writes(state)
        if (pod := state.slot.live) is not None:
            for text, after, kind in self._supervised.moves(state.slot.ran, pod, state.versions):
                if kind in ("", *CONFIG.kinds):
                    yield text, _with(state, after)
        yield from self._reads(state)
        yield from self._lease_moves(state)
        if not self._is_due(state):
            read = state.read and state.read._replace(age=min(LEASE, state.read.age + 1))
            over = a_tick_older(state.over, FENCE)
            yield "time passes", state._replace(over=over, left=max(0, state.left - 1), read=read)

    def judge(self, state: LeasedPod) -> str:
        """Name the rule that a state breaks, or return ""."""
        pod = state.slot.live
        if state.rule or pod is None or pod.agent is None:
            return state.rule
        holds = pod.agent.agent.leased and over_for(state.over, leased_epoch(pod.agent.agent)) == FENCE
        runs = pod.worker != NO_WORKER and over_for(state.over, pod.worker[0]) == FENCE
        return F2 if holds or runs else ""

    def _writes(self, state: LeasedPod) -> Iterator[Move]:
        """Let somebody store a next status: a failure, a sync, or an epoch that is skipped."""
        _, synced, deprecated = state.versions[-1]
        following = [(synced, synced)] if deprecated < synced else []
        following += [(synced + 1, deprecated), (synced + 1, synced + 1)] if synced < EPOCHS_MAX else []
        for epochs in following:
            now = (0, *epochs)
            text = f"somebody writes S={epochs[0]} D={epochs[1]}"
            yield text, state._replace(versions=(*state.versions, now), over=over_since(state.over, now))

    def _reads(self, state: LeasedPod) -> Iterator[Move]:
        if state.read is None:
            yield "sends a consistent read", state._replace(read=Read(state.versions[-1], 0))
            return
        yield "its read fails", state._replace(read=None)
        for version in state.versions:
            if version >= state.read.sent:
                yield self._answered(state, state.read, version)

    def _answered(self, state: LeasedPod, read: Read, version: Version) -> Move:
        text = f"reads S={version[1]} D={version[2]}, {read.age} ticks old"
        text, state = self._stepped(state._replace(read=None), View(*self._status(version)), text)
        pod = state.slot.live
        if pod is None or pod.agent is None:
            return text, state
        return text, state._replace(left=int(renewed_until_s(state.left, -read.age, LEASE, pod.agent.agent)))

    def _lease_moves(self, state: LeasedPod) -> Iterator[Move]:
        held, pod = state.left > 0, state.slot.live
        if pod is not None and pod.agent.agent.leased != held:
            yield self._stepped(state, Lease(held), "its lease begins" if held else "its lease is over")

    def _stepped(self, state: LeasedPod, event: Any, text: str) -> Move:
        pod = state.slot.live
        assert pod is not None
        text, after, _ = self._supervised.stepped(state.slot.ran, pod, event, state.versions[-1], text)
        return text, _with(state, after)

    def _is_due(self, state: LeasedPod) -> bool:
        """Say whether a tick must wait: an agent notices the end of its lease, and ends its worker, within one."""
        pod = state.slot.live
        if pod is None or pod.agent is None or state.left > 0:
            return False
        dies = pod.worker != NO_WORKER and (pod.killed or pod.worker[1] != RUNNING)
        return dies or bool(pod.agent.agent.leased)


def _with(state: LeasedPod, pod: Pod) -> LeasedPod:
    """Return a state in which the Pod has made a move."""
    return state._replace(slot=settled(state.slot, "live", pod._replace(rule="")), rule=pod.rule)


def _present(state: LeasedPod) -> LeasedPod:
    """Drop what no later move reads."""
    pod = state.slot.live
    if pod is None or pod.agent is None:
        return state
    slot = SlotState(0, pod._replace(annotation=0, orphan=0))
    since = [pod.seen, *([pod.started] if pod.started else []), *([state.read.sent] if state.read else [])]
    versions = tuple(version for version in state.versions[:-1] if version >= min(since))
    over = without_the_past(state.over, [slot], FENCE)
    return state._replace(slot=slot, versions=(*versions, state.versions[-1]), over=over)


def explore_promises() -> Result:
    """Visit every state of one Pod with a lease, nearest first; stop at the first that breaks a rule."""
    return search("one Pod with a lease", LeaseWorld(), is_last=lambda state: bool(state.rule), may_be=lambda _: True)
