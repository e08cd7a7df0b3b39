"""Planted bugs of the escalation, which its exploration must find."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from inplace.common.jobset import escalation as spec_escalation
from inplace.common.jobset.causes import Trigger
from inplace.common.jobset.escalation import FAIL, Escalation, Use, kept
from inplace.common.jobset.kinds import Pod
from inplace.common.jobset.places import Place
from inplace.common.jobset.scopes import Scope
from inplace.common.protocol.decision import Decision
from inplace.controller.plan import escalation as plan_escalation
from inplace.controller.plan.budget import exempt_next_epoch
from inplace.controller.plan.draft import Draft
from inplace.controller.plan.executions import recreate_jobs
from inplace.controller.tracking.group import Group, failed_pods
from inplace.controller.tracking.scope_ledger import ScopeLedger
from tests.model.escalations import ESCALATIONS, explore_escalations
from tests.planted.bug import checked
from tests.planted.mistake import instead_of, within

_BY_POD: Final = partial(explore_escalations, ESCALATIONS[1])
_BY_JOB: Final = partial(explore_escalations, ESCALATIONS[3])


def _keeps_half(
    original: Callable[..., tuple[Use, ...]], escalation: Escalation, uses: Sequence[Use], now_s: float, now: str
) -> tuple[Use, ...]:
    return original([replace(step, window_s=(step.window_s + 1) // 2) for step in escalation], uses, now_s, now)


def _forgets_the_future(
    original: Callable[..., tuple[Use, ...]], escalation: Escalation, uses: Sequence[Use], now_s: float, now: str
) -> tuple[Use, ...]:
    return original(escalation, [use for use in uses if spec_escalation._age_s(use, now_s) >= 0], now_s, now)


def _blames_any(
    original: Callable[..., dict[str, Pod]],
    group: Group,
    pod_named: Callable[[str], Pod | None],
    home_of: Callable[[str], ScopeLedger | None],
) -> dict[str, Pod]:
    causes = {name: scope_ledger.cause for name, scope_ledger in group.ledgers.items()}
    for name, cause in causes.items():
        if cause is not None and cause.trigger.is_failure:
            group.ledgers[name].cause = replace(cause, trigger=Trigger.WORKER_EXIT)
    found = original(group, pod_named, home_of)
    for name, cause in causes.items():
        group.ledgers[name].cause = cause
    return found


def _goes_on(original: Callable[..., Decision], draft: Draft, scope: Scope, decision: Decision) -> Decision:
    climbed = original(draft, scope, decision)
    return climbed if FAIL in draft.escalation_steps else decision


def _blames_the_other(original: Callable[..., Place | None], draft: Draft, scope: Scope) -> Place | None:
    place = original(draft, scope)
    return None if place is None else (place[0], 1 - place[1])


ESCALATION_BUGS: Final = (
    checked("escalation: the window forgets at a leader change", partial(explore_escalations, forgets=True)),
    checked(
        "escalation: a use is dropped when half its window is over",
        explore_escalations,
        instead_of(kept, _keeps_half),
        stories="escalation",
    ),
    checked(
        "escalation: a clock that is set back forgets",
        partial(explore_escalations, ESCALATIONS[2], faults=3),
        instead_of(kept, _forgets_the_future),
    ),
    checked(
        "escalation: replaces a healthy Pod after a hang",
        _BY_POD,
        instead_of(failed_pods, _blames_any),
        stories="escalation",
    ),
    checked(
        "escalation: a death and the failure of its Job are counted twice",
        partial(explore_escalations, ESCALATIONS[2]),
        instead_of(
            plan_escalation.count_recreation,
            lambda original, draft, scope: (
                plan_escalation._take(draft, scope, recreation=True).step if draft.jobset.escalation else ""
            ),
        ),
        stories="escalation",
    ),
    checked(
        "escalation: a restart is counted again when S grows",
        explore_escalations,
        instead_of(
            plan_escalation._begins_counted,
            lambda original, draft, scope, decision: original(
                draft, replace(scope, deprecated=scope.synced - 1), decision
            ),
        ),
        stories="escalation",
    ),
    checked(
        "escalation: maxRestarts counts what RecreateJobs recreates twice",
        _BY_POD,
        within(plan_escalation._recreate, instead_of(exempt_next_epoch, lambda original, *_, **__: None)),
        stories="escalation",
    ),
    checked(
        "escalation: recreates the Job of a healthy Pod",
        _BY_JOB,
        instead_of(plan_escalation._failed_place, _blames_the_other),
        stories="escalation",
    ),
    checked(
        "escalation: maxRestarts counts a Job that is recreated alone twice",
        _BY_JOB,
        within(
            plan_escalation._recreate_job,
            instead_of(
                recreate_jobs,
                lambda original, draft, replicated_job, indexes, counted: original(
                    draft, replicated_job, indexes, (*counted, *counted)
                ),
            ),
        ),
        stories="escalation",
    ),
    checked(
        "escalation: S grows past the Pod that is to be replaced", _BY_POD, instead_of(plan_escalation.climb, _goes_on)
    ),
)
