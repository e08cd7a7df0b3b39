"""The lease of a Pod's worker, and time: what the fence of a dead node needs (docs/adr/0072)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from tests.model.code import Code
from tests.model.pods import LEASE, NO_WORKER, RUNNING, Pod, SlotState
from tests.model.rules import Version
from tests.model.statuses import Statuses

Step = Callable[[SlotState, Pod, Any, Version, str], tuple[str, Pod, str]]
UNSENT: Final = None


class LeaseMoves:
    """Knows what an agent does about its lease: it reads, and takes note of its lease's beginning and end."""

    def __init__(self, code: Code, stepped: Step) -> None:
        self._agent = code.agent
        self._lease = code.lease
        self._stepped = stepped
        self._read = Statuses(code).read

    def moves(self, slot: SlotState, pod: Pod, now: Version) -> Iterator[tuple[str, Pod, str]]:
        """Yield every move; the adversary gives a read the oldest status that it may show."""
        if pod.read is UNSENT and not pod.cut and pod.lease < LEASE:
            yield "sends a consistent read", pod._replace(read=now, read_age=0), ""
        if pod.read is not UNSENT and not pod.cut:
            yield self._answered(slot, pod, now)
        if pod.read is not UNSENT and pod.cut:
            yield "its read fails", pod._replace(read=UNSENT, read_age=0), ""
        if pod.agent.agent.leased != (pod.lease > 0):
            held = pod.lease > 0
            text = "its lease begins" if held else "its lease is over"
            yield self._stepped(slot, pod, self._agent.Lease(held), now, text)

    def _answered(self, slot: SlotState, pod: Pod, now: Version) -> tuple[str, Pod, str]:
        assert pod.read is not None
        version, sent = pod.read, -pod.read_age
        pod = pod._replace(read=UNSENT, read_age=0, seen=max(pod.seen, version))
        text = f"reads S={version[1]} D={version[2]}, {-sent} ticks old"
        text, pod, kind = self._stepped(slot, pod, self._agent.View(*self._read(version)), now, text)
        if pod.agent is not None:
            pod = pod._replace(lease=self._lease.renewed_until_s(pod.lease, sent, LEASE, pod.agent.agent))
        return text, pod, kind


def is_waited_for(pod: Pod | None) -> bool:
    """Say whether time stands still for a Pod: what it does takes no time that counts.

    An agent notices the end of its lease, and kills its worker, within a tick. One that reaches the API server renews
    its lease before it ends, unless its epoch is over: so only those that are cut off lose it.
    """
    if pod is None or pod.agent is None or not pod.exposed:
        return False
    dies = pod.worker != NO_WORKER and (pod.killed or pod.worker[1] != RUNNING)
    if pod.lease == 0 and (pod.agent.agent.leased or dies):
        return True
    return not pod.cut and not pod.told and pod.worker[1] == RUNNING and pod.lease < LEASE


def a_tick_older(pod: Pod | None) -> Pod | None:
    """Return a Pod a tick later."""
    if pod is None or not pod.exposed:
        return pod
    older = pod._replace(lease=max(0, pod.lease - 1))
    return older if pod.read is UNSENT else older._replace(read_age=min(LEASE, pod.read_age + 1))
