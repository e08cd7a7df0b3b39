"""
Say in sentences what a JobSet does about failures, with what holds where nothing is set. Pure.

The sentences say what the controller does: a value that it cannot read has no effect here either, and has a finding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from inplace.cli.lint.pod_policy import absence, pod_sentences
from inplace.cli.lint.stored import as_stored
from inplace.cli.terminal.moments import whole_duration_text
from inplace.common.jobset.crash_loop import backoff_of
from inplace.common.jobset.escalation import IN_PLACE, RECREATE_JOB, RECREATE_JOBS, REPLACE_POD, Escalation
from inplace.common.jobset.jobset import JobSet
from inplace.common.jobset.members import has_jobs_as_units, units_of
from inplace.common.jobset.notices import restart_on
from inplace.common.jobset.scopes import BY_GROUP, BY_REPLICATED_JOB
from inplace.common.jobset.settings import FAILURES, NODES, RESTART_ON
from inplace.common.jobset.topology import finds_domain
from inplace.common.kube.resources import KubeObject
from inplace.common.protocol.errors import RemoteProtocolError
from inplace.common.wire import names as wire
from inplace.common.wire.in_place import restarts_in_place
from inplace.common.wire.notice import LOSS, SLOW, STALL, STEPS

DONE: Final[Mapping[str, str]] = {
    IN_PLACE: "all workers restart in their Pods",
    REPLACE_POD: "the Pod that failed first is replaced, and the others restart in place",
    RECREATE_JOB: "the Job of the Pod that failed first is deleted and created again, and the others restart in place",
    RECREATE_JOBS: "all Jobs are deleted and created again",
}
NOTICES: Final[Mapping[str, str]] = {
    LOSS: "a loss that is no finite number",
    SLOW: "a rank whose own work on a step gets slower",
    STEPS: "steps that get slower",
    STALL: "a rank that makes no step for far longer than before",
}
_SCOPES: Final = {
    BY_GROUP: "Each groupName restarts for itself; maxRestarts and the escalation count for all together.",
    BY_REPLICATED_JOB: "Each replicatedJob restarts for itself; maxRestarts and the escalation count for all together.",
}


def policy_sentences(jobset: KubeObject) -> tuple[str, ...]:
    """Return what happens at a failure; nothing of a JobSet that cannot be read."""
    try:
        return tuple(_sentences(as_stored(jobset), jobset))
    except RemoteProtocolError:
        return ()  # has a finding of its own


def _sentences(jobset: JobSet, raw: KubeObject) -> Iterator[str]:
    policy = jobset.failure_policy
    if not jobset.is_in_place:
        given = (policy.strategy if policy is not None else "") or "not set"
        by_annotation = f" and so does the annotation {wire.RESTART_IN_PLACE}"
        chosen = f" and so does restartStrategy {wire.IN_PLACE_RESTART}"  # the annotation counts where none was chosen
        yield (
            f"Nothing restarts in place here (restartStrategy is {given}): `inplace inject -f FILE` changes that,"
            f"{by_annotation if restarts_in_place(policy and policy.strategy, '') else chosen}."
        )
    if policy is None:
        yield "The first Job that fails fails the JobSet: it has no failurePolicy."
        return
    if jobset.is_in_place and wire.DISABLE in jobset.annotations:
        yield f"No worker waits for the others, and no group restarts: {wire.DISABLE} switches it off."
        return
    if policy.rules:
        yield "If a Job fails, the rules of the failurePolicy come first; what follows is for Jobs that fit none."
    if jobset.escalation:
        yield from _escalation_sentences(jobset.escalation, policy.restarts_max)
    else:
        yield from _budget_sentences(DONE[IN_PLACE if jobset.is_in_place else RECREATE_JOBS], policy.restarts_max)
    if not jobset.is_in_place:
        return
    if jobset.wanted_scope in _SCOPES:
        yield _SCOPES[jobset.wanted_scope]
    yield from _member_sentences(jobset)
    yield from _progress_sentences(jobset)
    yield _notice_sentence(jobset)
    yield from _node_sentences(jobset)
    yield _deadline_sentence(jobset)
    yield from pod_sentences(jobset, raw)


def _budget_sentences(done: str, restarts_max: int) -> Iterator[str]:
    if restarts_max == 0:
        yield "The first failure fails the JobSet, with the reason ReachedMaxRestarts: maxRestarts is 0."
        return
    yield f"After a failure {done}: {_often(restarts_max)} in the JobSet's life (maxRestarts)."
    yield "The next failure fails the JobSet, with the reason ReachedMaxRestarts."


def _escalation_sentences(escalation: Escalation, restarts_max: int) -> Iterator[str]:
    first, *others = escalation
    yield f"After a failure {DONE[first.name]}: {_often(first.uses_max)} in any {whole_duration_text(first.window_s)}."
    for step in others:
        yield f"Beyond that {DONE[step.name]}: {_often(step.uses_max)} in any {whole_duration_text(step.window_s)}."
    yield "Beyond that the JobSet fails, with the reason RestartLimitExceeded."
    total = "1 restart" if restarts_max == 1 else f"{restarts_max} restarts"
    yield f"After {total} in all (maxRestarts) it fails at the next failure, whatever the windows say."


def _often(uses: int) -> str:
    return "once" if uses == 1 else f"up to {uses} times"


def _member_sentences(jobset: JobSet) -> Iterator[str]:
    for name, policy in jobset.member_policies.items():
        sizes, form = policy.sizes, jobset.replicated_job(name)
        units, noun = units_of(form), "Pods"
        if has_jobs_as_units(form):
            noun = f"Jobs of {form.parallelism} Pods" if form.parallelism > 1 else "Jobs of 1 Pod"
        job = f" of {name}" if len(jobset.replicated_jobs) > 1 else ""
        if spares := units - sizes.most:
            train = f"{sizes.most} of {units} {noun}{job} train; {_spares(spares)}"
        else:
            train = f"All {units} {noun}{job} train; none is a spare"
        if sizes.least == sizes.most:
            yield f"{train}; with fewer than {sizes.most} it waits ({wire.MEMBERS})."
            continue
        steps = f", in steps of {sizes.step}" if sizes.step > 1 else ""
        yield (
            f"{train}; with fewer than {sizes.most} it waits {whole_duration_text(policy.wait_s)} and goes on with "
            f"{sizes.least} or more{steps} ({wire.MEMBERS})."
        )


def _spares(count: int) -> str:
    return "1 is a spare" if count == 1 else f"{count} are spares"


def _progress_sentences(jobset: JobSet) -> Iterator[str]:
    backoff = backoff_of(jobset.annotations)
    if backoff.same_max is not None:
        same = f"{backoff.same_max} failures in a row have one error, from one rank or at one step"
        yield f"If {same}, without progress in between, the JobSet fails: NoProgress."
    if backoff.epochs_max is None:
        unset = absence(jobset, FAILURES, "no-progress")
        yield f"A failure that comes back at the same step counts as any other ({unset})."
        return
    epochs = "an epoch ends" if backoff.epochs_max == 1 else f"{backoff.epochs_max} epochs in a row end"
    ends = "an Event says so" if backoff.is_observed else "the JobSet fails: NoProgress"
    yield f"If {epochs} by a failure and without a higher step than ever before, {ends}."
    yield f"An epoch whose steps no Pod tells counts as one without progress if it ran less than {backoff.long_s:g} s."


def _notice_sentence(jobset: JobSet) -> str:
    named = restart_on(jobset.annotations)
    kinds = [words for kind, words in NOTICES.items() if kind in named]
    if not kinds:
        unset = absence(jobset, RESTART_ON)
        return f"A loss that is no finite number, and steps that get slower, restart nothing ({unset})."
    return f"Failures are also: {', '.join(kinds)} ({wire.RESTART_ON})."


def _node_sentences(jobset: JobSet) -> Iterator[str]:
    if jobset.leaves_marked_nodes:
        yield "A Pod that failed first on a node that is cordoned, tainted or not ready is replaced on another node."
    else:
        yield f"A Pod restarts in place on a cordoned or tainted node, too (marked=stay in {wire.NODES})."
    if jobset.bad_nodes is None:
        unset = absence(jobset, NODES, "failures")
        if (told := jobset.suspects) is not None:
            times = "once" if told.failures == 1 else f"{told.failures} times"
            done = "its Pods stay" if told.is_observed else "without a spare its Pods stay"
            yield f"An Event tells of a node whose worker was the first to fail {times} in {told.window_s} s; {done}."
        yield f"No node is avoided: a Pod that is replaced may return to its node ({unset})."
        return
    yield f"Pods and nodes: {jobset.bad_nodes}."
    yield "A Pod whose failure makes its node bad is replaced. If no other node is free, it may return there."
    if any(finds_domain(jobset, job) for job in jobset.replicated_jobs if not job.has_opted_out):
        yield (
            "A Job with its own domain is recreated if a bad node cannot be avoided there: more than "
            f"{jobset.bad_nodes.percent} % of its nodes are bad (one always may be), or the domain has no other node."
        )


def _deadline_sentence(jobset: JobSet) -> str:
    deadline = jobset.barrier_deadline
    if deadline is None:
        return "A group waits without limit for Pods that are missing, and no Event says so."
    done = "the Jobs of the missing Pods are recreated" if deadline.recreates else "an Event says so, and it waits on"
    return f"If a group waits longer than {whole_duration_text(deadline.seconds)} for Pods that are missing, {done}."
