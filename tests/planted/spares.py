"""Planted bugs of groups with spares that no model of the protocol sees: who tells whom, when, and for how long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from inplace.agent import slot_keeper
from inplace.common.bare.record import replace
from inplace.common.jobset.scopes import Scope
from inplace.common.protocol import agent, members
from inplace.common.protocol.agent import AgentState, Verdict
from inplace.common.protocol.link import PlayedRank
from inplace.common.protocol.member_ledger import MemberLedger
from inplace.common.protocol.members import Members
from inplace.common.protocol.resume import Resume
from inplace.common.wire import names as wire
from inplace.common.wire.members import members_text
from inplace.controller.plan import epochs
from inplace.controller.tracking.group import Group
from inplace.controller.tracking.scope_ledger import ScopeLedger
from inplace.controller.tracking.spares import FirstSight, SpareClock
from tests.planted.bug import Area, Bug, hunted
from tests.planted.mistake import Mistake, instead_of

SPARES_STORIES: Final = "members"


def _told(name: str, area: Area, mistake: Mistake, *, campaign: bool = False) -> Bug:
    """Return a bug that the stories of members find, and the campaign where it says so."""
    return Bug(name, area, (mistake,), faults=() if campaign else None, stories=SPARES_STORIES)


def _writes_later(original: Callable[..., dict[str, Any]], scope: Scope, *rest: Any) -> dict[str, Any]:
    fields = original(scope, *rest)
    synced, _, decision = rest
    fields.pop(wire.MEMBERS_FIELD, None)
    if scope.has_spares and synced == scope.synced and decision.members is not None:
        fields[wire.MEMBERS_FIELD] = members_text(decision.members)
    return fields


def _has_another_rank(original: Callable[..., PlayedRank], self: slot_keeper.SlotKeeper, epoch: int) -> PlayedRank:
    return replace(original(self, epoch), rank=self._slot)


def _counts_slots(original: Callable[..., PlayedRank], self: slot_keeper.SlotKeeper, epoch: int) -> PlayedRank:
    member = original(self, epoch)
    return replace(member, size=member.size + 1)


def _keeps_list(
    original: Callable[..., Members],
    epoch: int,
    slots: list[int],
    seen: int,
    resume: Resume | None = None,
    pods: int = 0,
) -> Members:
    return replace(original(epoch, slots, seen, resume, pods), exchanged=())


def _sends_owners_home(original: Callable[..., Any], arrived: Any, before: Members, *rest: Any) -> Any:
    return original(arrived, Members(before.epoch, before.size), *rest)


def _lifts_spares(original: Callable[..., Verdict], state: AgentState) -> Verdict:
    verdict, view = original(state), state.view
    is_late = verdict is Verdict.SPARE and view is not None and state.epoch == view.synced
    return Verdict.SYNCED if is_late and state.slot is not None else verdict


def _believes_at_once(original: Callable[..., Any], self: ScopeLedger, promised_s: Any, now_s: float) -> Any:
    return original(self, lambda: 0.0, now_s)


SPARES: Final = (
    hunted(
        "members: a rank is that of the slot",
        Area.AGENT,
        (instead_of(slot_keeper.SlotKeeper.played, _has_another_rank),),
    ),
    hunted(
        "members: a size is not that of the list",
        Area.AGENT,
        (instead_of(slot_keeper.SlotKeeper.played, _counts_slots),),
    ),
    hunted(
        "members: a spare lifts where it announced S", Area.PROTOCOL, (instead_of(agent.judge_state, _lifts_spares),)
    ),
    hunted(
        "members: a spare does not hear that the group has completed",
        Area.AGENT,
        (instead_of(slot_keeper.SlotKeeper.complete, lambda original, self: None),),
    ),
    _told(
        "members: the list comes in a later write than its epoch",
        Area.CONTROLLER,
        instead_of(epochs._fields, _writes_later),
        campaign=True,
    ),
    _told(
        "members: the list names no slot that was exchanged",
        Area.PROTOCOL,
        instead_of(members.members_of, _keeps_list),
        campaign=True,
    ),
    _told(
        "members: a rank goes back to its owner",
        Area.PROTOCOL,
        instead_of(members.choose, _sends_owners_home),
        campaign=True,
    ),
    _told(
        "members: a group grows without a wait",
        Area.CONTROLLER,
        instead_of(
            SpareClock.note,
            lambda original, self, ledger, moves, wait_s, now_s: original(self, ledger, moves, lambda: 0.0, now_s),
        ),
        campaign=True,
    ),
    _told(
        "members: a group never grows",
        Area.CONTROLLER,
        instead_of(MemberLedger.grown, lambda original, self: 0),
        campaign=True,
    ),
    _told(
        "members: a barrier waits for the most for ever",
        Area.CONTROLLER,
        instead_of(MemberLedger.is_short, lambda original, self: False),
        campaign=True,
    ),
    _told(
        "members: a group with spares never completes",
        Area.CONTROLLER,
        instead_of(Group.done, lambda original, self: frozenset()),
        campaign=True,
    ),
    _told(
        "members: what an agent ran is ignored",
        Area.CONTROLLER,
        instead_of(MemberLedger._has_run, lambda original, self, slot: False),
    ),
    _told(
        "members: a spare's end is the cause of a restart",
        Area.CONTROLLER,
        instead_of(ScopeLedger.plays, lambda original, self, pod: True),
    ),
    _told(
        "members: a doubted worker is trusted at once",
        Area.CONTROLLER,
        instead_of(ScopeLedger.trust, _believes_at_once),
    ),
    Bug(
        "members: a new controller takes its list for the first",
        Area.CONTROLLER,
        (
            instead_of(FirstSight.since, lambda original, self, uid: 0),
            instead_of(MemberLedger.relisted, lambda original, self, version: None),
        ),
        stories=SPARES_STORIES,
    ),
)
