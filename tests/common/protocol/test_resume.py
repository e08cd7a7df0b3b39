"""From which step an epoch goes on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inplace.common.bare.record import replace
from inplace.common.protocol.agent import AgentPhase, AgentState, Verdict, View, judge_state
from inplace.common.protocol.ledger import Ledger
from inplace.common.protocol.members import Members
from inplace.common.protocol.pod_view import PodView
from inplace.common.protocol.resume import LOCAL_STEPS_MAX, Resume, Saved, choose_resume, local_after
from inplace.common.protocol.slot import Shape, Slot

steps = st.integers(0, 9)
saved = st.builds(
    Saved,
    st.lists(steps, max_size=LOCAL_STEPS_MAX, unique=True).map(lambda found: tuple(sorted(found, reverse=True))),
    st.none() | steps,
    st.none() | steps,
)
groups = st.lists(st.none() | saved, max_size=4)
resumes = st.none() | st.builds(Resume, steps, st.booleans())


def test_the_newest_that_all_have_is_chosen() -> None:
    """A local step of all goes before an older shared one, and before the same step where all must fetch it."""
    pods = [Saved((5, 4), 4), Saved((4, 3))]
    assert choose_resume(pods, same=True, tellers=pods) == Resume(4, local=True)
    assert choose_resume(pods, same=False, tellers=pods) == Resume(4, local=False)
    assert choose_resume([*pods, None], same=True, tellers=pods) == Resume(4, local=False)
    assert choose_resume([], same=True, tellers=[]) is None


@given(groups, groups, st.booleans())
def test_what_is_chosen_can_be_loaded(pods: list[Saved | None], others: list[Saved | None], same: bool) -> None:
    """Every member has a local step, somebody told a shared one, no member finds it unfit; and it is the newest."""
    found = choose_resume(pods, same=same, tellers=[*pods, *others])
    told = [each for each in pods if each is not None]
    unfit = {each.unfit for each in told}
    shared = {each.shared for each in [*pods, *others] if each is not None and each.shared is not None} - unfit
    is_whole = same and bool(pods) and len(told) == len(pods)
    local = {step for step in range(10) if is_whole and all(step in each.local for each in told)} - unfit
    if found is None:
        assert not shared | local
        return
    assert found.step == max(shared | local)
    assert found.local is (found.step in local)
    assert found.step not in unfit


@given(st.lists(steps, max_size=6).map(tuple), resumes)
def test_what_is_newer_than_where_all_went_on_is_dropped(local: tuple[int, ...], resume: Resume | None) -> None:
    """A run that went on from a shared step, or from nowhere, leaves none of the older ones."""
    kept = local_after(local, resume)
    limit = resume.step if resume is not None and resume.local else -1
    assert kept == tuple(step for step in local if step <= limit)
    assert local_after(kept, resume) == kept


LISTED = View(2, 1, members=Members(2, 2, seen=7, everyone=True))
WAITING = AgentState(phase=AgentPhase.WAITING, epoch=2, view=LISTED, accepted=7, told=True)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (WAITING, Verdict.SYNCED),
        (replace(WAITING, told=False), Verdict.SYNCED),
        (replace(WAITING, accepted=8), Verdict.SPARE),
        (replace(WAITING, accepted=8, told=False), Verdict.SPARE),
        (replace(WAITING, view=View(2, 1)), Verdict.SPARE),
        (replace(WAITING, view=View(2, 1), told=False), Verdict.SYNCED),
        (replace(WAITING, view=View(2, 1, lists=False)), Verdict.SYNCED),
        (replace(WAITING, view=View(2, 1, members=Members(1, 2, seen=9, everyone=True))), Verdict.SPARE),
        (replace(WAITING, view=View(2, 1, members=Members(2, 2, seen=9, skipped=True, everyone=True))), Verdict.SPARE),
        (replace(WAITING, view=replace(LISTED, deprecated=2)), Verdict.DEPRECATED),
    ],
)
def test_who_was_counted_lifts_by_the_list(state: AgentState, expected: Verdict) -> None:
    """Others announce the next epoch; who told of steps needs a list, unless nobody writes one."""
    assert judge_state(state) is expected


def ledger_of(*told: Saved | None) -> Ledger:
    """Return a ledger of Pods that announced epoch 1, and told this."""
    ledger = Ledger(Shape({"a": (1, len(told))}))
    for number, each in enumerate(told):
        ledger.observe(PodView(f"uid-{number}", Slot("a", 0, number), 1, version=number + 1, saved=each))
    return ledger


def test_a_group_that_tells_of_no_steps_has_no_list() -> None:
    """And one that did once has one from then on."""
    assert ledger_of(None, None).decide(restarts_max=0).members is None
    ledger = ledger_of(None, Saved((), 3))
    members = ledger.decide(restarts_max=0).members
    assert members == Members(1, 2, seen=2, resume=Resume(3, local=False), everyone=True)
    ledger.learn(1, 0, members)
    for number in range(2):
        ledger.observe(PodView(f"uid-{number}", Slot("a", 0, number), 2, version=number + 5))
    assert ledger.decide(restarts_max=9).members == Members(2, 2, seen=6, everyone=True)


def test_a_step_of_another_size_is_no_local_step() -> None:
    """A resize between two epochs, noticed by this controller or by the size of the last list, leaves shared steps."""
    told = Saved((4,), 2)
    resized = ledger_of(told, told, None)
    resized.forget("uid-2")
    resized.reshape(Shape({"a": (1, 2)}))
    listed = Ledger(Shape({"a": (1, 2)}), 1, 0, Members(1, 3, seen=1, everyone=True))
    for number in range(2):
        listed.observe(PodView(f"uid-{number}", Slot("a", 0, number), 2, version=number + 5, saved=told))
    for ledger in (resized, listed):
        members = ledger.decide(restarts_max=9).members
        assert members is not None
        assert members.resume == Resume(2, local=False)
