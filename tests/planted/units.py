"""Planted bugs of groups whose units are whole Jobs: each takes one Pod of a Job for the Job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

from inplace.common.protocol import agent
from inplace.common.protocol.agent import AgentState, Verdict
from inplace.common.protocol.member_ledger import MemberLedger
from inplace.common.protocol.members import Members
from inplace.common.protocol.slot import Slot
from tests.model.configurations import kinds
from tests.model.members import explore_members
from tests.model.units import TWO_JOBS
from tests.planted.bug import checked
from tests.planted.mistake import instead_of


def _shown_by(faults: int, names: str, **options: Any) -> Callable[[], Any]:
    return partial(explore_members, replace(TWO_JOBS, faults=faults, kinds=kinds(names), **options))


def _is_whole_with_one(
    original: Callable[..., None], self: MemberLedger, counts: Counter[int], whole: set[int], unit: int, change: int
) -> None:
    original(self, counts, whole, unit, change)
    if counts[unit]:
        whole.add(unit)


def _runs_beside_spares(original: Callable[..., Verdict], state: AgentState) -> Verdict:
    verdict, view = original(state), state.view
    is_of_s = verdict is Verdict.SPARE and view is not None and view.members is not None
    return Verdict.SYNCED if is_of_s and state.slot is not None else verdict


def _plays_its_own_job(original: Callable[..., int | None], self: Members, job: int, index: int) -> int | None:
    return None if original(self, job, index) is None else job * self.pods + index


def _gives_up_the_job(original: Callable[..., bool], self: MemberLedger, slot: Slot) -> bool:
    lost = {one.job_index for one in self._lost}
    return original(self, slot) or slot.job_index in lost


def _misses_whole_jobs(original: Callable[..., bool], self: MemberLedger) -> bool:
    taken = {slot.job_index for slot in self._occupants}
    self._lost -= {slot for slot in self._lost if slot.job_index in taken}
    return original(self)


def _waits_for_parts(original: Callable[..., Any], self: MemberLedger, *args: Any, **limits: Any) -> Any:
    parts = set(self._here) - self._arrived
    return None if parts else original(self, *args, **limits)


def _of_the_first(original: Callable[..., bool], self: MemberLedger, slot: Slot) -> bool:
    return slot.completion_index == 0 and original(self, slot)


UNIT_BUGS: Final = (
    checked(
        "units: a Job with a lost Pod is counted as arrived",
        _shown_by(1, "delete"),
        instead_of(MemberLedger._count_in_unit, _is_whole_with_one),
        stories="members_units",
    ),
    checked(
        "units: a Pod of a Job that is no member starts",
        _shown_by(1, "delete"),
        instead_of(agent.judge_state, _runs_beside_spares),
    ),
    checked(
        "units: a Pod's rank is that of its own Job",
        _shown_by(1, "delete"),
        instead_of(Members.place_of, _plays_its_own_job),
    ),
    checked(
        "units: the workers beside a lost Pod are not waited for",
        _shown_by(1, "delete"),
        instead_of(MemberLedger._is_vacant, _gives_up_the_job),
    ),
    checked(
        "units: a Job restarts the group only when all of its Pods are lost",
        _shown_by(1, "delete", silent=frozenset({0})),
        instead_of(MemberLedger._is_broken, _misses_whole_jobs),
    ),
    checked(
        "units: the barrier waits for a spare Job whose Pod is pending",
        _shown_by(1, "worker", silent=frozenset({2})),
        instead_of(MemberLedger._choose, _waits_for_parts),
        stories="members_units",
    ),
    checked(
        "units: only the first Pod of a Job leaves a doubt",
        _shown_by(1, "force"),
        instead_of(MemberLedger._is_doubted, _of_the_first),
    ),
)
