"""Planted bugs of groups with spares; most are rules that look right."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from inplace.common.bare.record import replace
from inplace.common.protocol import agent, members
from inplace.common.protocol.agent import AgentState, Verdict, View
from inplace.common.protocol.decision import Decision
from inplace.common.protocol.member_ledger import MemberLedger
from inplace.common.protocol.members import Sizes
from inplace.common.protocol.pod_record import Record
from inplace.common.protocol.pod_view import PodLife
from inplace.common.protocol.slot import Slot
from inplace.common.wire.members import Announced, read_announcement
from tests.model.configurations import kinds
from tests.model.member_parts import MembersConfig
from tests.model.members import explore_members
from tests.planted.bug import checked
from tests.planted.mistake import Mistake, instead_of

Asking = Callable[..., bool]


def _shown_by(faults: int, names: str, **options: Any) -> Callable[[], Any]:
    return partial(explore_members, MembersConfig(faults, kinds(names), **options))


def _in_verdict(wrong: Callable[[AgentState, Verdict], Verdict]) -> Mistake:
    """Let an agent in a group with spares take another verdict."""

    def bug(original: Callable[..., Verdict], state: AgentState) -> Verdict:
        verdict = original(state)
        return wrong(state, verdict) if state.slot is not None else verdict

    return instead_of(agent.judge_state, bug)


def _counts_all(state: AgentState, verdict: Verdict) -> Verdict:
    view = state.view
    is_of_s = verdict is Verdict.SPARE and view is not None and view.members is not None
    if is_of_s and state.slot is not None and view.members.rank_of(state.slot) is not None:  # type: ignore[union-attr]
        return Verdict.SYNCED
    return verdict


def _reads_no_epoch(original: Callable[..., View], old: View | None, new: View) -> View:
    view, shown = original(old, new), new.members
    return view if shown is None else replace(view, members=replace(shown, epoch=view.synced))


def _skips_for_a_spare(original: Callable[..., Decision], self: MemberLedger, **limits: Any) -> Decision:
    if any(epoch > self.synced for _, epoch in self._gone):
        return Decision(self.next_epoch, self.next_epoch)
    return original(self, **limits)


def _remembers_pods(original: Asking, self: MemberLedger) -> bool:
    self._back &= {
        slot for slot, pods in self._occupants.items() for one in pods.values() if one.instance_synced < self.synced
    }
    return original(self)


def _is_gone_only_if_empty(original: Asking, self: MemberLedger) -> bool:
    self._lost -= self._occupants.keys()
    return original(self)


def _ignores_the_late(original: Asking, self: MemberLedger, slot: Slot) -> bool:
    pods = self._occupants.get(slot, {}).values()
    return original(self, slot) and all(record.epoch is None for record in pods)


def _ignores_the_leaving(original: Asking, self: MemberLedger, slot: Slot) -> bool:
    pods = self._occupants.get(slot, {}).values()
    return original(self, slot) or all(record.pod.life is PodLife.LEAVING for record in pods)


def _believes_its_list(original: Asking, self: MemberLedger, slot: Slot) -> bool:
    since, self.since = self.since, 0
    answer = original(self, slot)
    self.since = since
    return answer


def _sees_intruders(original: Asking, self: MemberLedger) -> bool:
    others = [record for record in self._records.values() if not self.plays(record.pod.slot)]
    return original(self) or any(record.epoch == self.synced for record in others)


def _moves_everybody(original: Callable[..., Any], *args: Any) -> Any:
    slots = original(*args)
    return slots and [slots[0]] * len(slots)


def _forgets(original: Callable[..., None], self: MemberLedger, record: Record) -> None:
    """Note nothing."""


_FORCED: Final = _shown_by(1, "force")
_LATE: Final = {"is_first": True}
_TWO: Final = {"slots": 2, "sizes": Sizes(1, 1)}  # a member and a spare
_ONE: Final = {"slots": 1, "sizes": Sizes(1, 1)}  # a member and its doubles

MEMBER_BUGS: Final = (
    checked(
        "members: a spare's announcement restarts the group",
        _shown_by(0, ""),
        instead_of(MemberLedger._is_broken, lambda original, self: original(self) or bool(self._arrived)),
        stories="members",
    ),
    checked(
        "members: an epoch is skipped while another runs", _FORCED, instead_of(MemberLedger.decide, _skips_for_a_spare)
    ),
    checked(
        "members: an announcement that was not counted lifts",
        _shown_by(1, "force", lag=3, **_LATE, **_TWO),
        _in_verdict(_counts_all),
    ),
    checked(
        "members: a Pod that vanished leaves no doubt",
        _FORCED,
        instead_of(MemberLedger._note_gone, _forgets),
        stories="members",
    ),
    checked(
        "members: a new controller has no doubts",
        _shown_by(2, "force controller", **_TWO),
        instead_of(MemberLedger._is_doubted, _believes_its_list),
        stories="members",
    ),
    checked(
        "members: a double at the barrier is not skipped",
        _shown_by(2, "force worker", **_TWO),
        instead_of(MemberLedger._may_have_a_double, lambda original, self, slot: False),
        stories="members",
    ),
    checked(
        "members: a new controller knows of no doubles",
        _shown_by(2, "force controller", **_LATE, **_ONE),
        instead_of(MemberLedger._may_have_a_double, _believes_its_list),
        stories="members",
    ),
    checked(
        "members: a lost member restarts nobody",
        _shown_by(1, "delete", silent=frozenset({0})),
        instead_of(MemberLedger._is_broken, lambda original, self: self._lost.clear() or original(self)),
        stories="members",
    ),
    checked(
        "members: a lost member whose next Pod is pending restarts nobody",
        _shown_by(1, "delete", silent=frozenset({0})),
        instead_of(MemberLedger._is_broken, _is_gone_only_if_empty),
    ),
    checked(
        "members: a spare that announces late restarts the group",
        _shown_by(0, "", **_LATE),
        instead_of(MemberLedger._is_broken, _sees_intruders),
        stories="members",
    ),
    checked(
        "members: a controller waits for the Pods that it remembers",
        _shown_by(2, "delete controller", **_TWO),
        instead_of(MemberLedger._is_broken, _remembers_pods),
        stories="members",
    ),
    checked(
        "members: without members each slot plays its own rank",
        _shown_by(2, "stripped worker"),
        _in_verdict(lambda _, verdict: Verdict.SYNCED if verdict is Verdict.UNREAD else verdict),
    ),
    checked(
        "members: without members everybody is a spare",
        _shown_by(2, "torn worker"),
        _in_verdict(lambda _, verdict: Verdict.SPARE if verdict is Verdict.UNREAD else verdict),
    ),
    checked(
        "members: the members of another epoch are believed",
        _shown_by(2, "torn worker"),
        instead_of(agent.newest, _reads_no_epoch),
    ),
    checked(
        "members: an epoch without members stays",
        _shown_by(2, "stripped worker"),
        instead_of(MemberLedger._is_broken, lambda original, self: self.members is not None and original(self)),
    ),
    checked(
        "environment: upstream's agent sees the epochs of a group with spares",
        _shown_by(1, "worker", upstream=frozenset({2}), shows_epochs=True),
    ),
    checked(
        "members: upstream's announcement is counted",
        _shown_by(0, "", upstream=frozenset({2}), **_LATE),
        instead_of(read_announcement, lambda original, text, epoch: original(text, epoch) or Announced(0)),
        stories="members",
    ),
    checked(
        "members: a Pod that never announced blocks the barrier",
        _shown_by(1, "worker", silent=frozenset({2})),
        instead_of(
            MemberLedger._is_vacant, lambda original, self, slot: original(self, slot) and slot not in self._occupants
        ),
    ),
    checked(
        "members: a spare that hangs blocks the barrier",
        _shown_by(2, "hang worker", **_LATE),
        instead_of(MemberLedger._is_vacant, _ignores_the_late),
    ),
    checked(
        "members: a slot whose Pod leaves is vacant",
        _shown_by(2, "delete worker"),
        instead_of(MemberLedger._is_vacant, _ignores_the_leaving),
    ),
    checked(
        "members: a controller that is behind decides",
        _shown_by(2, "handover delete", **_TWO),
        instead_of(MemberLedger._is_behind, lambda original, self: False),
    ),
    checked(
        "members: a slot plays two ranks",
        _shown_by(1, "worker"),
        instead_of(members.choose, _moves_everybody),
        stories="members",
    ),
    checked(
        "members: a spare that takes over costs no restart",
        _shown_by(1, "delete", restarts_max=0),
        instead_of(
            MemberLedger.decide,
            lambda original, self, *, restarts_max, **rest: original(self, restarts_max=restarts_max + 1, **rest),
        ),
        stories="members",
    ),
    checked(
        "members: a barrier never tires of waiting",
        _shown_by(1, "delete", sizes=Sizes(1, 2), silent=frozenset({0, 2}), is_patient=False),
        instead_of(MemberLedger.is_short, lambda original, self: False),
        stories="members",
    ),
)
