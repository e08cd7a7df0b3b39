"""Planted bugs of groups whose Pods save steps: each lets the parts of two wholes meet, or two workers start apart."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace as changed
from functools import partial
from typing import Any, Final

from inplace.common.bare.record import replace
from inplace.common.protocol import agent, resume
from inplace.common.protocol.agent import AgentState, Verdict
from inplace.common.protocol.ledger import Ledger
from inplace.common.protocol.member_ledger import MemberLedger
from inplace.common.protocol.members import Members, Sizes
from inplace.common.protocol.resume import Resume, Saved
from inplace.common.protocol.slot import Shape
from tests.model.configurations import kinds
from tests.model.resume import ResumeConfig, explore_resume
from tests.planted.bug import Bug, checked
from tests.planted.mistake import Mistake, instead_of

Chosen = Resume | None
Pods = Iterable[Saved | None]


def _shown_by(faults: int, names: str, **options: Any) -> Callable[[], Any]:
    return partial(explore_resume, ResumeConfig(faults, kinds(names), **{"slots": 2, **options}))


def _chosen_from(spoil: Callable[[list[Saved | None]], list[Saved | None]]) -> Mistake:
    """Let other lists than the Pods' be compared."""

    def bug(original: Callable[..., Chosen], pods: Pods, *, same: bool, tellers: Pods) -> Chosen:
        return original(spoil(list(pods)), same=same, tellers=spoil(list(tellers)))

    return instead_of(resume.choose_resume, bug)


def _joined(pods: list[Saved | None]) -> list[Saved | None]:
    steps = {step for saved in pods if saved is not None for step in saved.local}
    return [replace(saved, local=tuple(steps)) if saved is not None else Saved(tuple(steps)) for saved in pods]


def _fit(pods: list[Saved | None]) -> list[Saved | None]:
    return [saved and replace(saved, unfit=None) for saved in pods]


def _is_always_the_same(original: Callable[..., Chosen], pods: Pods, *, same: bool, tellers: Pods) -> Chosen:
    return original(pods, same=True, tellers=tellers)


def _asks_the_first(original: Callable[..., Pods], self: MemberLedger, units: Iterable[int]) -> Pods:
    return iter(list(original(self, units))[:: self.shape.each])


def _is_always_local(original: Callable[..., Chosen], pods: Pods, *, same: bool, tellers: Pods) -> Chosen:
    found = original(pods, same=same, tellers=tellers)
    return found and replace(found, local=True)


def _is_always_shared(original: Callable[..., Chosen], pods: Pods, *, same: bool, tellers: Pods) -> Chosen:
    found = original(pods, same=same, tellers=tellers)
    return found and replace(found, local=False)


def _in_verdict(wrong: Callable[[AgentState], bool]) -> Mistake:
    """Let an agent in a group without spares lift where it should announce the next epoch."""

    def bug(original: Callable[..., Verdict], state: AgentState) -> Verdict:
        verdict = original(state)
        return Verdict.SYNCED if verdict is Verdict.SPARE and state.slot is None and wrong(state) else verdict

    return instead_of(agent.judge_state, bug)


def _has_list(state: AgentState) -> bool:
    return state.view is not None and state.view.members is not None


def _forgets_the_resize(original: Callable[..., None], self: Ledger, *status: Any) -> None:
    original(self, *status)
    self._resized = False


def _notes_no_resize(original: Callable[..., None], self: Ledger, shape: Shape) -> None:
    resized = self._resized
    original(self, shape)
    self._resized = resized


def _compares_no_size(original: Callable[..., Members | None], self: Ledger, epoch: int) -> Members | None:
    kept = self.members
    self.members = kept and replace(kept, size=self.shape.size)
    members = original(self, epoch)
    self.members = kept
    return members


def _keeps_newer(original: object, local: tuple[int, ...], resume: Chosen) -> tuple[int, ...]:
    return local if resume is not None and resume.local else ()


RESUME_STORIES: Final = "resume_steps"
_SHARED: Final = {"shared": True, "steps": 1}
_SPARES: Final = {"plain": False, "sizes": Sizes(1, 2), "is_patient": False, "steps": 1}
_JOBS: Final = {"plain": False, "sizes": Sizes(1, 1), "steps": 1, "slots": 4, "pods": 2, "stale": 1}


def _hunted(name: str, world: Callable[[], Any], mistake: Mistake) -> Bug:
    """Return a bug that the model, the campaign and the stories find."""
    return changed(checked(name, world, mistake, stories=RESUME_STORIES), faults=())


RESUME_BUGS: Final = (
    _hunted("resume: a step that one member has is local to all", _shown_by(1, "worker"), _chosen_from(_joined)),
    _hunted(
        "resume: a member that has nothing is not asked",
        _shown_by(1, "delete"),
        _chosen_from(lambda pods: [saved for saved in pods if saved is not None]),
    ),
    _hunted(
        "resume: a step that the Pods have themselves is told as a shared one",
        _shown_by(1, "worker"),
        instead_of(resume.choose_resume, _is_always_shared),
    ),
    checked(
        "resume: old copies are kept whatever the group went on from",
        _shown_by(2, "worker"),
        instead_of(resume.local_after, lambda original, local, resume: local),
    ),
    checked(
        "resume: copies newer than the step that was gone back to are kept",
        _shown_by(2, "worker", sparse=True),
        instead_of(resume.local_after, _keeps_newer),
    ),
    checked(
        "resume: a step that could not be loaded is told again",
        _shown_by(2, "worker unfit", **_SHARED),
        _chosen_from(_fit),
        stories=RESUME_STORIES,
    ),
    checked(
        "resume: a shared step is taken for a local one",
        _shown_by(1, "worker", **_SHARED),
        instead_of(resume.choose_resume, _is_always_local),
        stories=RESUME_STORIES,
    ),
    checked(
        "resume: an announcement that was not counted lifts by the list",
        _shown_by(2, "worker delete", lag=3, steps=1),
        _in_verdict(_has_list),
    ),
    checked(
        "resume: a Pod that told of steps lifts without a list",
        _shown_by(2, "worker stripped"),
        _in_verdict(lambda state: not _has_list(state)),
    ),
    checked(
        "resume: a resize between two epochs is not noted",
        _shown_by(2, "worker resize"),
        instead_of(Ledger.reshape, _notes_no_resize),
    ),
    checked(
        "resume: any write ends a resize", _shown_by(2, "worker resize"), instead_of(Ledger.learn, _forgets_the_resize)
    ),
    checked(
        "resume: a new controller compares no size",
        _shown_by(3, "worker resize controller", listed=True),
        instead_of(Ledger._everyone, _compares_no_size),
    ),
    checked(
        "resume: a local step counts for any rank and any size",
        _shown_by(2, "delete worker", **_SPARES),
        instead_of(resume.choose_resume, _is_always_the_same),
        stories=RESUME_STORIES,
    ),
    checked(
        "resume: of a Job only the first Pod is asked for its steps",
        _shown_by(1, "worker", **_JOBS),
        instead_of(MemberLedger._saved, _asks_the_first),
    ),
)
