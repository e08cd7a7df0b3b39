"""
Leases in the world of a group, and time: what the fence of a dead node needs (docs/adr/0072).

An agent promises that it holds no lease for longer than LEASE ticks after its epoch was over. `tests.model.promises`
shows that it keeps that, read by read. Here only the promise stands: a lease begins whenever it may and its agent
reaches the API server, and ends at any time where the agent is cut off, or at the last moment where it is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from inplace.common.protocol.agent import Lease
from inplace.common.protocol.lease import renewed_until_s
from tests.model.pods import LEASE, NO_WORKER, RUNNING, Pod, SlotState
from tests.model.rules import Version

Step = Callable[[int, Pod, Any, Version, str], tuple[str, Pod, str]]
Over = tuple[int, ...]
"""For how many ticks each epoch has been over, epoch 1 first, up to a lease; an epoch that may run has no place."""


class LeaseMoves:
    """Knows when the lease of a Pod may begin, and when it may end."""

    def __init__(self, stepped: Step) -> None:
        self._stepped = stepped

    def moves(self, ran: int, pod: Pod, now: Version, over: Over) -> Iterator[tuple[str, Pod, str]]:
        """Yield every move."""
        if pod.agent is None:
            return
        agent = pod.agent.agent
        if agent.leased and (pod.cut or over_for(over, leased_epoch(agent)) == LEASE):
            yield self._stepped(ran, pod, Lease(False), now, "its lease is over")
        may_begin = not pod.cut and agent.epoch > 0 and over_for(over, agent.epoch) < LEASE
        if not agent.leased and may_begin and renewed_until_s(0, 0, LEASE, agent):
            yield self._stepped(ran, pod, Lease(True), now, "its lease begins")


def over_for(over: Over, epoch: int) -> int:
    """Return for how many ticks an epoch has been over; 0 for one that may run."""
    return over[epoch - 1] if 0 < epoch <= len(over) else 0


def leased_epoch(agent: Any) -> int:
    """Return the epoch of an agent's lease: before it chooses its next one, of the one before; 0 for none."""
    return agent.epoch or agent.previous or 0


def over_since(over: Over, now: Version) -> Over:
    """Return what is over once a status is stored."""
    _, synced, deprecated = now
    return over + (0,) * (max(synced - 1, deprecated) - len(over))


def a_tick_older(over: Over, most: int = LEASE) -> Over:
    """Return what is over a tick later; beyond `most` ticks nobody counts."""
    return tuple(min(most, ticks + 1) for ticks in over)


def without_the_past(over: Over, slots: Iterable[SlotState], most: int = LEASE) -> Over:
    """Forget since when epochs have been over that no Pod is in, or comes to, so that equal states are equal."""
    pods = [pod for slot in slots for pod in (slot.live, slot.leaving) if pod is not None]
    first = min((_first_epoch(pod) for pod in pods), default=0)
    return tuple(most if epoch < first else ticks for epoch, ticks in enumerate(over, 1))


def _first_epoch(pod: Pod) -> int:
    epoch = pod.annotation if pod.agent is None else leased_epoch(pod.agent.agent)
    return epoch if pod.worker == NO_WORKER else min(epoch, pod.worker[0])


def is_waited_for(pod: Pod | None, over: Over) -> bool:
    """Say whether time stands still for a Pod: its lease is over, and what is left to do takes less than a tick."""
    if pod is None or pod.agent is None:
        return False
    if pod.agent.agent.leased and over_for(over, leased_epoch(pod.agent.agent)) == LEASE:
        return True
    dies = pod.worker != NO_WORKER and (pod.killed or pod.worker[1] != RUNNING)
    return dies and over_for(over, pod.worker[0]) == LEASE
