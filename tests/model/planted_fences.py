"""Planted bugs of the fence of a dead node, of both sides; as `tests.model.planted`."""

from __future__ import annotations

from typing import Final

from tests.model.configurations import FENCED
from tests.model.planted import Bug, dropped
from tests.model.promises import explore_promises

_RENEWED: Final = "in (Verdict.DEPRECATED, Verdict.PASSED):"
_FENCES: Final = """            self._vanished = max(self._vanished, record.epoch or 0)
            self._withdraw(record)
"""

FENCE_BUGS: Final = (
    Bug(
        "controller: a ghost is not waited for",
        FENCED,
        "lease",
        "return over_since_s + promised - now_s",
        "return 0.0",
    ),
    Bug(
        "controller: waits for the lease, and not for the worker's end",
        FENCED,
        "lease",
        "return over_since_s + promised - now_s",
        "return over_since_s + promised - 1 - now_s",
    ),
    Bug(
        "ledger: the epoch that a fenced ghost waits for is not skipped",
        FENCED,
        "ledger",
        _FENCES,
        _FENCES.replace("record.epoch or 0", "0"),
    ),
    dropped("an announcement on a Pod that is being deleted counts", "leaving", FENCED),
    Bug(
        "lease: renewed although the epoch is over",
        explore_promises,
        "lease",
        _RENEWED,
        "is Verdict.PASSED:",
    ),
    Bug(
        "lease: renewed although the group has gone on",
        explore_promises,
        "lease",
        _RENEWED,
        "is Verdict.DEPRECATED:",
    ),
    Bug(
        "lease: begins with the answer, and not when the read was sent",
        explore_promises,
        "lease",
        "return max(until_s, sent_s + length_s)",
        "return max(until_s, length_s)",
    ),
    Bug(
        "agent: does not end its worker when the lease is over",
        explore_promises,
        "agent",
        "if state.phase is AgentPhase.LIFTED and not state.leased and",
        "if False and",
    ),
    Bug(
        "agent: lifts without a lease",
        explore_promises,
        "agent",
        "or (phase is AgentPhase.LIFTED and not state.leased)",
        "or False",
    ),
    Bug(
        "supervisor: a worker in its grace outlives the lease",
        explore_promises,
        "supervisor",
        "ends = state.life is WorkerLife.STOPPING and not held",
        "ends = False",
    ),
)
