"""Controllers of a group with spares: production ledgers, interned, and what they say."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import fields
from dataclasses import replace as changed
from typing import Any, Final, NamedTuple

from inplace.common.bare.record import replace
from inplace.common.protocol.decision import Decision
from inplace.common.protocol.ledger import Ledger
from inplace.common.protocol.member_ledger import MemberLedger
from inplace.common.protocol.members import Members
from inplace.common.protocol.pod_view import PodLife
from inplace.common.protocol.slot import Slot
from tests.model.frozen import freeze, thaw
from tests.model.member_parts import GroupState, MembersConfig, Stored, on_the_wire, stored_with
from tests.model.memo import Interned, One, memo

Frozen = tuple[Any, ...]
OWN: Final = (
    *("playing", "_arrived", "_spares", "_coming", "_weights", "_blocking", "doubted", "_lost", "_back"),
    *("_here", "_there", "_done", "_gone", "_trusted"),
)
_OTHERS: Final = ("sizes", "since", "_pods_of_s")  # the last one follows from members


class Known(NamedTuple):
    """What one ledger says, computed once."""

    decisions: tuple[tuple[bool, Decision, Stored, tuple[str, ...]], ...]  # waited, it, the status, each rank's uid
    doubted: tuple[Slot, ...]
    leaving: tuple[str, ...]  # uids of Pods that leave, and are not fenced
    grown: bool
    synced: int


class MemberLedgers:
    """Interns ledgers: a controller in a state is one number."""

    def __init__(self, config: MembersConfig) -> None:
        known = [each.name for each in fields(MemberLedger)][len(fields(Ledger)) :]
        assert sorted(known) == sorted((*OWN, *_OTHERS)), f"expected fields {OWN} and {_OTHERS}, saw {known}"
        self.config = config
        self.shape = config.shape
        self._frozen = Interned[Frozen]()

    def begun(self, stored: Stored, since: int) -> MemberLedger:
        """Return the ledger of a controller that begins."""
        sizes = self.config.sizes
        return MemberLedger(self.shape, *stored[:2], sizes=sizes, members=stored.members, since=since)

    def thaw(self, number: int) -> MemberLedger:
        """Return a ledger that may be changed."""
        body, own, since, seen, members = self._frozen[number]
        base = thaw(self.shape, body)
        ledger = MemberLedger(self.shape, base.synced, base.deprecated, sizes=self.config.sizes)
        for each in fields(base):
            setattr(ledger, each.name, getattr(base, each.name))
        for name, value in zip(OWN, own, strict=True):
            kept = getattr(ledger, name)
            kept.clear()
            kept.update(dict(value) if isinstance(kept, dict) else value)
        ledger.since, ledger._seen, ledger.members = since, seen, members
        ledger._pods_of_s = members.pods if members is not None else 0
        return ledger

    def intern(self, ledger: MemberLedger) -> int:
        """Return the number of a ledger."""
        for record in ledger._records.values():
            ran = record.pod.ran if record.pod.ran >= ledger.synced else 0
            version = record.pod.version if record.pod.uid in ledger._ahead else 0  # else nothing reads it again
            if (version, ran) != (record.pod.version, record.pod.ran):
                record.pod = changed(record.pod, version=version, ran=ran)
        parts = [getattr(ledger, name) for name in OWN]
        own = tuple(
            tuple(sorted([one for one in part.items() if one[1]] if isinstance(part, dict) else part)) for part in parts
        )
        return self._frozen.number((freeze(ledger), own, ledger.since, ledger._seen, ledger.members))

    @memo
    def versions(self, number: int) -> frozenset[int]:
        """Return the versions that a ledger compares others with."""
        *_, since, seen, members = self._frozen[number]
        return frozenset((since, seen, members.seen if members is not None else 0))

    @memo
    def renumbered(self, number: int, order: tuple[int, ...]) -> int:
        """Return a ledger with other numbers for its versions."""
        body, own, since, seen, members = self._frozen[number]
        return self._frozen.number((body, own, placed(order, since), placed(order, seen), renumbered(members, order)))

    @memo
    def after(self, number: int, what: str, seen: Any) -> int:
        """Return the ledger after an event."""
        ledger = self.thaw(number)
        self._take_in(ledger, what, seen)
        return self.intern(ledger)

    def _take_in(self, ledger: MemberLedger, what: str, seen: Any) -> None:
        match what:
            case "seen":
                ledger.observe(seen.value)
            case "ended":
                record = ledger._records.get(seen)
                if record is not None:
                    ledger.observe(changed(record.pod, life=PodLife.FAILED))
                ledger.vanish(seen)
            case "vanished":
                ledger.vanish(seen)
            case "learn":
                ledger.learn(seen.synced, seen.deprecated, seen.members)
            case "trust":
                ledger.trust(seen)
            case "fence":
                ledger.fence(seen)

    @memo
    def known(self, number: int, exempt: int) -> Known:
        """Return what a ledger says."""
        ledger, decisions = self.thaw(number), []
        for waited in (False, True) if ledger.is_short and not self.config.is_patient else (False,):
            decision = ledger.decide(restarts_max=self.config.restarts_max, uncounted=exempt, waited=waited)
            want = stored_with(decision.synced, decision.deprecated, on_the_wire(decision.members))
            is_sync = want.synced > max(ledger.synced, want.deprecated) and want.members is not None
            slots = self.config.numbers(want.members.slots() if is_sync and want.members is not None else [])
            uids = tuple(next(iter(ledger._occupants.get(self.config.slot(slot), [""]))) for slot in slots)
            decisions.append((waited, decision, want, uids))
        records = ledger._records.values()
        leaving = tuple(one.pod.uid for one in records if one.pod.life is PodLife.LEAVING and not one.fenced)
        return Known(tuple(decisions), tuple(sorted(ledger.doubted)), leaving, bool(ledger.grown), ledger.synced)


def placed(order: tuple[int, ...], version: int) -> int:
    """Return the new number of a version: its place among those that others are compared with."""
    return bisect_left(order, version) + 1 if version else 0


def renumbered(members: Members | None, order: tuple[int, ...]) -> Members | None:
    """Return members with another number for the version that they have seen."""
    return None if members is None else replace(members, seen=placed(order, members.seen))


def compared(ledgers: MemberLedgers, state: GroupState) -> set[int]:
    """Return the versions that others are compared with."""
    found = {*ledgers.versions(state.leader), *(ledgers.versions(state.old) if state.old >= 0 else ())}
    found |= {each.members.seen for each in state.versions if each.members is not None}
    found |= {seen.value.version for _, seen in state.events if isinstance(seen, One)}
    views = [pod.agent.view for pod in state.pods if pod.agent is not None and pod.agent.view is not None]
    found |= {view.members.seen for view in views if view.members is not None}
    return found - {0}


def newest(ledgers: MemberLedgers, state: GroupState) -> int:
    """Return the newest version there is."""
    accepted = [pod.agent.accepted for pod in state.pods if pod.agent is not None]
    return max((*compared(ledgers, state), *accepted), default=0)
