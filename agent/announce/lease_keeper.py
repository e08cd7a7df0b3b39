"""
Keep the lease of this Pod's worker, so that the controller need not wait for a node that is gone (FENCE_AFTER_S).

While the API server answers, a consistent read every quarter to third of the lease's length renews it. What is too old
to let a worker run is the machine's next event, and the machine ends the worker. `common.protocol.lease` decides for
how long a read is good, and docs/adr/0072 says why that is enough. Nothing of this is loaded where no lease is asked
for.

5,000 agents with a lease of 60 s send 290 reads a second. It is the agent that pays with its worker when the API server
cannot answer them, so `docs/nodes.md` says when not to ask for a lease.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from inplace.agent.announce.retry_causes import cause_of, words_of
from inplace.agent.deps import AgentDeps
from inplace.agent.settings.config import AgentConfig
from inplace.common.kube.errors import ApiError
from inplace.common.kube.http.request import TransportError
from inplace.common.kube.watch import Busy, ending_of
from inplace.common.protocol.agent import AgentState, Lease, View
from inplace.common.protocol.errors import RemoteProtocolError
from inplace.common.protocol.lease import END_S, renewed_until_s

LOOK_S: Final = 1.0  # the end of a lease is noticed so late; END_S has room for it
RENEW: Final = (1 / 4, 1 / 3)  # of the length, between two reads: spread, so that a group does not read at once
RETRY: Final = (1 / 12, 1 / 6)  # of the length, after a read that failed: three tries before the lease is over
PATIENCE: Final = 1 / 6  # of the length, for one answer


class LeaseKeeper:
    """Keep one worker's lease.

    Args:
        take: advances the machine by an event: the lease begins or is over, or a view.
        state: returns where the agent's own machine stands.
        look: reads the JobSet consistently, see `JobSetWatch.look`.
        grace_s: returns how long a guard lets its worker live when its agent is gone; None where no guard is.
    """

    def __init__(
        self,
        config: AgentConfig,
        deps: AgentDeps,
        *,
        take: Callable[[Lease | View], None],
        state: Callable[[], AgentState],
        look: Callable[[float], Awaitable[View]],
        grace_s: Callable[[], float | None],
    ) -> None:
        self._length_s = config.fence_after_s
        self._start_slot_s = config.start_slot_s
        self._clock = deps.clock
        self._rng = deps.rng
        self._log = deps.log
        self._take = take
        self._state = state
        self._look = look
        self._grace_s = grace_s
        self._now_s = deps.now_s or deps.clock.monotonic_s
        self._until_s = float("-inf")
        self._problem = ""

    def work(self) -> tuple[Coroutine[Any, Any, None], ...]:
        """Return what keeps the lease until it is cancelled."""
        return self._renew(), self._watch()

    def check(self) -> None:
        """Tell the machine when the lease has begun or is over."""
        held = self._now_s() < self._until_s and (self._grace_s() or 0.0) <= END_S
        if held == self._state().leased:
            return
        if not held:
            why = f"no consistent read of the JobSet was answered for {self._length_s} s: {self._problem or 'too late'}"
            if (grace_s := self._grace_s() or 0.0) > END_S:
                why = f"expected a guard's --grace of at most {END_S:g} s beside FENCE_AFTER_S, saw {grace_s:g} s"
            self._log.error(
                "lease_over", message=why, then="the worker is killed; none starts until a read is answered"
            )
        self._take(Lease(held))

    async def _renew(self) -> None:
        await self._clock.sleep(self._start_slot_s)
        while True:
            sent_s, least_s = self._now_s(), 0.0
            try:
                view = await self._look(self._length_s * PATIENCE)
            except (ApiError, TransportError) as error:
                ending = ending_of(error)
                least_s = ending.after_s if isinstance(ending, Busy) else 0.0
                self._note(f"{cause_of(ending)}: {words_of(ending)}")
            except RemoteProtocolError as error:
                self._note(str(error))
            else:
                self._problem = ""
                self._take(view)
                self._until_s = renewed_until_s(self._until_s, sent_s, self._length_s, self._state())
                self.check()
            least, most = RETRY if self._problem else RENEW
            await self._clock.sleep(max(least_s, self._length_s * self._rng.uniform(least, most)))

    async def _watch(self) -> None:
        while True:
            await self._clock.sleep(LOOK_S)
            self.check()

    def _note(self, problem: str) -> None:
        self._problem = problem
        left_s = self._until_s - self._now_s()
        self._log.warning("lease_not_renewed", message=problem, left_s=round(max(0.0, left_s), 1))
