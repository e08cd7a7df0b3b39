"""Turn the decisions of the ledgers into status fields and actions: group restarts in place."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from inplace.common.jobset import conditions, goodput
from inplace.common.jobset.causes import COMPLETED, Cause, Trigger, unix_time
from inplace.common.jobset.escalation import FAIL, led_on
from inplace.common.jobset.jobset import COUNTERS
from inplace.common.jobset.kinds import Job
from inplace.common.jobset.last_restart import UNSEEN, begun, blamed, ended, entry_of
from inplace.common.jobset.notices import listed
from inplace.common.jobset.restart_history import FIELD, fields_of, history_of, with_cost
from inplace.common.jobset.scopes import BY_JOBSET, DIVIDING, Scope, fields_of_epochs, first_scopes, write_scope
from inplace.common.jobset.slow_ranks import slow_ranks
from inplace.common.jobset.verdict import OWN_ENDS, is_echo
from inplace.common.protocol.bounds import INT32_MAX
from inplace.common.protocol.decision import Decision
from inplace.common.protocol.errors import InvariantError
from inplace.common.wire import names as wire
from inplace.common.wire.members import members_text
from inplace.controller.plan.actions import DeleteJob
from inplace.controller.plan.bad_nodes import note_hang
from inplace.controller.plan.budget import recreate
from inplace.controller.plan.crash_loop import fail_if_hopeless, judge, lead_on, pace
from inplace.controller.plan.draft import COUNTERS_HOLD_RESTART_S, Draft
from inplace.controller.plan.escalation import climb
from inplace.controller.plan.finish import fail
from inplace.controller.plan.history import note_past_restart
from inplace.controller.plan.leaving import leave_marked_node

JOBS_NAMED_MAX = 5
LAST_WORDS_S = 0.5  # an agent sees within 0.25 s that an exception ended a rank; its peers tell at once


def divide_into_scopes(draft: Draft) -> bool:
    """Write what restarts together BEFORE any Job exists, and end the pass: Pods are told the same when they are made.

    Later the status decides, whatever becomes of the annotation; controller/plan/problems/report.py says so.
    """
    jobset, wanted = draft.jobset, draft.jobset.wanted_scope
    has_begun = bool(draft.observed.jobs) or jobset.is_finished or any(jobset.epochs)
    if not jobset.is_in_place or wanted not in DIVIDING or jobset.restart_scope != BY_JOBSET or has_begun:
        return False
    members = [job for job in jobset.replicated_jobs if not job.has_opted_out]
    draft.status[wire.RESTART_SCOPE_FIELD] = wanted
    names = (jobset.scope_name(job, by=wanted) for job in members)
    draft.status[wire.SCOPED_EPOCHS] = first_scopes(names, jobset.member_policies)
    return True


def mend_contradictions(draft: Draft) -> bool:
    """Write S as it reads where D is beyond it, BEFORE anything ends the pass: the CRD refuses every other write."""
    for scope in draft.jobset.scopes.values():
        if scope.is_contradictory:
            write_scope(draft.status, scope, fields_of_epochs(scope, scope.synced, scope.deprecated))
            draft.warn(
                "ContradictoryStatus",
                f"expected deprecatedEpoch to be at most syncedEpoch, saw it at {scope.deprecated}: syncedEpoch is set "
                f"to {scope.synced}, and the group comes together in the epoch after",
            )
    return False


def decide_epochs(draft: Draft) -> bool:
    """Write S and D, fail after one restart too many, recreate Jobs whose Pods cannot restart in place."""
    if draft.jobset.suspended:
        return False
    scopes = draft.jobset.scopes
    decisions = {name: climb(draft, scopes[name], decision) for name, decision in draft.observed.decisions.items()}
    decisions = {name: leave_marked_node(draft, scopes[name], decision) for name, decision in decisions.items()}
    exceeded = [draft.jobset.scopes[name] for name, decision in decisions.items() if decision.exceeded]
    if exceeded and _awaits_words(draft, exceeded):
        return True
    if exceeded:
        for scope in exceeded:
            _note_restart(draft, scope, is_over=False)  # it never comes, but who wanted it is what people ask
        is_last = any(scope.synced == INT32_MAX for scope in exceeded)
        has_no_step_left = (
            any(draft.jobset.has_no_step_left(scope) for scope in exceeded) or FAIL in draft.escalation_steps
        )
        limit = conditions.restart_limit_exceeded(draft.jobset.escalation) if has_no_step_left else None
        fail(draft, conditions.NO_EPOCH_LEFT if is_last else limit or conditions.reached_max_restarts())
        return True
    loops = {name: judge(draft, scopes[name], decision) for name, decision in decisions.items()}
    if fail_if_hopeless(draft, loops):
        return True
    for name, decision in decisions.items():
        _write_epochs(draft, scopes[name], pace(draft, scopes[name], decision, loops[name]))
    note_restarting(draft)
    if any(decision.recreate or _is_restarting(draft, name) for name, decision in decisions.items()):
        _recreate_completed(draft)
    return False


def _awaits_words(draft: Draft, exceeded: Iterable[Scope]) -> bool:
    """Say whether a failure that came before the last one may still be told: the Pods go with the JobSet's end.

    A worker whose own words say why it failed is not waited behind.
    """
    for scope in exceeded:
        cause = draft.causes.get(scope.name, UNSEEN)
        may_follow = cause.failure is not None and (not cause.failure.last_line or is_echo(cause.failure))
        seen_s = unix_time(cause.seen_at) if cause.trigger in OWN_ENDS and may_follow else None
        left_s = 0.0 if seen_s is None else LAST_WORDS_S - (draft.now_s - seen_s)
        if 0.0 < left_s <= LAST_WORDS_S:
            draft.look_again(left_s)
            return True
    return False


def _recreate_completed(draft: Draft) -> None:
    """Recreate the Jobs with completed Pods, in each scope that restarts."""
    scopes = draft.jobset.scopes_in(draft.status)
    by_scope: dict[str, list[Job]] = {}
    for job in draft.buckets.active + draft.buckets.successful:
        if _cannot_restart(draft, job):
            name = draft.jobset.scope_of(draft.jobset.places[job.metadata.name][0]).name
            by_scope.setdefault(name, []).append(job)
    for name, jobs in by_scope.items():
        new = [job.metadata.name for job in jobs if not job.is_leaving]
        recreated, _ = recreate(draft, scopes[name], jobs, DeleteJob.COMPLETED_PODS)
        if recreated:
            if (entry := entry_of(draft.status, scopes[name])) is not None and name in draft.causes:
                draft.status[wire.LAST_GROUP_RESTART] = blamed(entry, draft.causes[name])
            failure = draft.causes.get(name, UNSEEN).failure
            who = f"pod {failure.pod}" if failure is not None and failure.reason == COMPLETED else "a pod of each"
            more = f" and {len(new) - JOBS_NAMED_MAX:,} more" if len(new) > JOBS_NAMED_MAX else ""
            draft.warn(
                "CompletedPodsRecreated",
                f"{who} completed (exit code 0) while others went on, and cannot restart in place: recreated with all "
                f"their pods are the jobs {' '.join(new[:JOBS_NAMED_MAX])}{more}; what their emptyDir volumes held is "
                "gone",
            )


def _write_epochs(draft: Draft, scope: Scope, decision: Decision) -> None:
    """Write S and D of one scope."""
    if decision.synced < scope.synced or decision.deprecated < scope.deprecated:
        raise InvariantError(f"S and D only grow: decided {decision!r}, status says {scope!r}")
    deprecated = decision.deprecated
    if scope.name in draft.deprecating:
        deprecated = max(deprecated, scope.synced)
    if decision.synced > scope.synced + 1:
        _restore(draft, scope, decision)
    elif decision.synced > scope.synced and decision.synced == deprecated:
        _skip(draft, scope, decision)
    elif (decision.synced, deprecated) != (scope.synced, scope.deprecated):
        if decision.synced > scope.synced > 0:
            _note_run(draft, scope)
        write_scope(draft.status, scope, _fields(scope, decision.synced, deprecated, decision))
        _note_restart(draft, scope, is_over=decision.synced > scope.synced, is_decided=True)
    if decision.synced <= decision.deprecated or decision.synced == 0:
        draft.hold_s = COUNTERS_HOLD_RESTART_S if COUNTERS in draft.jobset.status else 0.0


def _fields(scope: Scope, synced: int, deprecated: int, decision: Decision) -> dict[str, Any]:
    """Return the fields of one write that say S, D, and who runs in S (docs/adr/0107)."""
    fields: dict[str, Any] = dict(fields_of_epochs(scope, synced, deprecated))
    if synced > scope.synced and (scope.has_spares or decision.members is not None):
        of_s = decision.members if decision.members is not None and decision.members.epoch == synced else None
        fields[wire.MEMBERS_FIELD] = members_text(of_s) if of_s is not None else ""
    return fields


def _skip(draft: Draft, scope: Scope, decision: Decision) -> None:
    """Sync and deprecate an epoch at once: a Pod that had announced it is gone, and may still wait at its barrier.

    No worker starts in it. The restart goes on to the epoch after, which is not counted again.
    """
    scope, epoch = draft.jobset.scopes_in(draft.status)[scope.name], decision.synced  # with what this pass has exempted
    after = min(epoch + 1, INT32_MAX)
    skipped = replace(scope, synced=epoch, deprecated=epoch, exempt=scope.exempt + 1, last_exempt=after)
    exemption = {wire.EXEMPT_EPOCHS: skipped.exempt, wire.LAST_EXEMPT_EPOCH: skipped.last_exempt}
    write_scope(draft.status, scope, _fields(scope, epoch, epoch, decision) | exemption)
    if wire.ESCALATION_USES in draft.status:
        draft.status[wire.ESCALATION_USES] = led_on(draft.status, scope.name, epoch, after)
    lead_on(draft, scope, epoch, after)
    cause = draft.causes.setdefault(scope.name, Cause(Trigger.POD_LOST, draft.now))
    draft.status[wire.LAST_GROUP_RESTART] = begun(draft.status, skipped, cause, draft.now)


def _restore(draft: Draft, scope: Scope, decision: Decision) -> None:
    """Write an S that the status had lost; what it proves beyond maxRestarts was not counted. docs/adr/0007."""
    write_scope(draft.status, scope, _fields(scope, decision.synced, decision.deprecated, decision))
    policy = draft.jobset.failure_policy
    uncounted = max(0, decision.restarts - policy.restarts_max) if policy is not None else 0
    if uncounted:
        write_scope(draft.status, scope, {wire.EXEMPT_EPOCHS: scope.exempt + uncounted})
    then = "its workers run on" if decision.synced > decision.deprecated else "the group meets in the epoch after"
    draft.warn(
        "StatusRestored",
        f"expected syncedEpoch to be {decision.synced}, as the pods announced, saw {scope.synced}: the status was "
        f"lost, and is written again; {then}",
    )


def _note_restart(draft: Draft, scope: Scope, *, is_over: bool, is_decided: bool = False) -> None:
    """Say in the same write when and why a group restart began, or that it is over.

    The first start is none, and after the last epoch there is none.
    """
    if scope.synced in (0, INT32_MAX):
        return
    cause, now = draft.causes.get(scope.name, UNSEEN), draft.now
    silent = draft.observed.silent.get(scope.name)
    if not is_over:
        decided = {"deprecatedAt": now} if is_decided else {}
        draft.status[wire.LAST_GROUP_RESTART] = begun(draft.status, scope, cause, now) | decided
        return
    note_hang(draft, cause, silent)
    entry = ended(draft.status, scope, cause, now, silent, slow_ranks(draft.observed.works.get(scope.name, ())))
    note_past_restart(draft, scope, entry or begun(draft.status, scope, cause, now) | {"syncedAt": now})
    if entry is not None:
        draft.status[wire.LAST_GROUP_RESTART] = entry


def _note_run(draft: Draft, scope: Scope) -> None:
    """Say in the same write what the run that ended says of training time lost, and so of the restart before it."""
    end, before = draft.end_of_epoch(scope), scope.goodput
    after = goodput.after_run(before, end.progress, unix_time(end.at))
    if after is None:
        return
    write_scope(draft.status, scope, {goodput.FIELD: after.fields()})
    if before is not None and after.restarts > before.restarts:
        draft.status[FIELD] = fields_of(with_cost(history_of(draft.status), scope.name, scope.synced, before, after))


def note_restarting(draft: Draft) -> None:
    """Set InPlaceRestarting in a write that happens anyway, as does that which begins or ends a group restart."""
    scopes = draft.jobset.scopes_in(draft.status).values() if draft.jobset.is_in_place else ()
    restarting = [scope for scope in scopes if scope.is_restarting]
    if bool(restarting) == draft.is_true(conditions.IN_PLACE_RESTARTING) or not draft.is_written_anyway:
        return
    if not restarting:
        over = next((scope for scope in draft.jobset.scopes.values() if scope.is_restarting), None)
        words = "" if over is None or over.name not in draft.causes else in_words(draft.causes[over.name], over)
        draft.turn_false(conditions.IN_PLACE_RESTARTING, words)
        return
    first = restarting[0]
    cause = draft.causes.get(first.name, UNSEEN)
    draft.set(conditions.in_place_restarting(cause.trigger.reason, in_words(cause, first)), quietly=True)


def in_words(cause: Cause, scope: Scope) -> str:
    """Say which epoch is over, and why."""
    which = f"epoch {scope.synced} of scope {scope.name}" if scope.name else f"epoch {scope.synced}"
    return f"{which} is over: {cause}"


def _cannot_restart(draft: Draft, job: Job) -> bool:
    """Say whether some Pod of a Job completed, so that it cannot join the restart that is under way.

    The Job's own count is asked as well: a completed Pod may be gone (kubectl delete, Pod garbage
    collection), and the Job controller never replaces it. Beside spares it takes too few units that are left: else a
    spare plays the rank.
    """
    place = draft.jobset.places[job.metadata.name]
    if place[0] not in draft.order.expected:
        return False
    scope = draft.jobset.scope_of(place[0])
    if place in draft.observed.decisions[scope.name].recreate:
        return True
    done = job.status.succeeded or 0
    if not done or not _is_restarting(draft, scope.name):
        return False
    most, form = draft.jobset.member_policy(scope).sizes.most, draft.jobset.replicated_job(place[0])
    if not scope.has_spares or form.replicas == 1:
        return done > (max(0, form.parallelism - most) if scope.has_spares else 0)
    names = (draft.jobset.job_name(form.name, index) for index in range(form.replicas))
    jobs = [found for name in names if (found := draft.observed.jobs.get(name)) is not None]
    return sum((one.status.succeeded or 0) > 0 for one in jobs) > max(0, form.replicas - most)


def _is_restarting(draft: Draft, name: str) -> bool:
    """Say whether the status says that a scope restarts, and this pass does not end that."""
    scope = draft.jobset.scopes[name]
    return scope.is_restarting and draft.observed.decisions[name].synced == scope.synced


# List in the status what Pods tell of the workers that run: `status.notices`, docs/adr/0104.
EVERY_S: Final = 1.0
"""Between two writes for notices alone: every agent gets each, and one Pod can change its notice without end."""


def list_notices(draft: Draft) -> bool:
    """Write the notices of running epochs; those of an epoch that ends go in the write that ends it."""
    scopes = draft.jobset.scopes_in(draft.status)
    running = {name: scope.synced for name, scope in scopes.items() if scope.is_running}
    notices = listed(one for one in draft.observed.notices if running.get(one.scope) == one.epoch)
    wanted = [notice.fields() for notice in notices]
    if wanted == (draft.status.get(wire.NOTICES) or []):
        return False
    noticed_s = draft.observed.noticed_s
    if noticed_s is not None and noticed_s < EVERY_S and not draft.is_written_anyway:
        draft.look_again(EVERY_S - noticed_s)
        return False
    draft.status[wire.NOTICES] = wanted or None
    return False
