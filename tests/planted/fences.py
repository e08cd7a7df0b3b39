"""Planted bugs of the fence of a dead node, of both sides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace as replace_config
from typing import Any, Final

from inplace.common.bare.record import replace
from inplace.common.protocol import agent
from inplace.common.protocol import pod as pod_machine
from inplace.common.protocol.agent import AgentPhase, AgentState, Verdict, judge
from inplace.common.protocol.lease import fenced_in_s, renewed_until_s
from inplace.common.protocol.ledger import Ledger
from tests.model.configurations import FENCED
from tests.model.promises import explore_promises
from tests.planted.bug import checked, dropped
from tests.planted.mistake import Mistake, instead_of


def _skips_nothing(original: Callable[..., None], self: Ledger, uid: str) -> None:
    vanished = self._vanished
    original(self, uid)
    self._vanished = vanished


def _gives_up_again(original: Callable[..., bool], self: Ledger, record: Any) -> bool:
    is_of_this_epoch = record.expected and record.epoch == self.synced > 0
    return original(self, record) or bool(is_of_this_epoch and record.pod.given_up)


def _renewed_when(over: Verdict) -> Mistake:
    return instead_of(
        renewed_until_s,
        lambda original, until_s, sent_s, length_s, agent: (
            max(until_s, sent_s + length_s)
            if agent.view is not None and judge(agent.epoch, agent.view) is over
            else original(until_s, sent_s, length_s, agent)
        ),
    )


def _lifts_unleased(original: Callable[..., Any], state: AgentState) -> Any:
    after, actions = original(replace(state, leased=True))
    return replace(after, leased=state.leased), actions


FENCE_BUGS: Final = (
    checked("controller: a ghost is not waited for", FENCED, instead_of(fenced_in_s, lambda original, *_: 0.0)),
    checked(
        "controller: waits for the lease, and not for the worker's end",
        FENCED,
        instead_of(
            fenced_in_s, lambda original, over_since_s, promised, now_s: original(over_since_s, promised - 1, now_s)
        ),
    ),
    checked(
        "ledger: the epoch that a fenced ghost waits for is not skipped",
        FENCED,
        instead_of(Ledger.fence, _skips_nothing),
    ),
    checked(
        "ledger: a Pod that is given up ends each epoch that it announces",
        replace_config(FENCED, stale=1),
        instead_of(Ledger._has_broken, _gives_up_again),
        slow=True,
    ),
    dropped("an announcement on a Pod that is being deleted counts", "leaving", FENCED),
    checked("lease: renewed although the epoch is over", explore_promises, _renewed_when(Verdict.DEPRECATED)),
    checked("lease: renewed although the group has gone on", explore_promises, _renewed_when(Verdict.PASSED)),
    checked(
        "lease: begins with the answer, and not when the read was sent",
        explore_promises,
        instead_of(
            renewed_until_s, lambda original, until_s, sent_s, length_s, agent: original(until_s, 0.0, length_s, agent)
        ),
    ),
    checked(
        "agent: does not end its worker when the lease is over",
        explore_promises,
        instead_of(
            agent._take_lease,
            lambda original, state: (state, ()) if state.phase is AgentPhase.LIFTED else original(state),
        ),
    ),
    checked("agent: lifts without a lease", explore_promises, instead_of(agent._settle, _lifts_unleased)),
    checked(
        "supervisor: a worker in its grace outlives the lease",
        explore_promises,
        instead_of(pod_machine._keep_lease, lambda original, state, *, held: (original(state, held=held)[0], ())),
    ),
)
