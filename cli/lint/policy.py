"""
Say in sentences what a JobSet does about failures, with what holds where nothing is set. Pure.

The sentences say what the controller does: a value that it cannot read has no effect here either, and has a finding.
Where replicatedJobs differ, a sentence about their Pods names those that it is about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from inplace.cli.lint.agent_policies import checks_of, is_unwatched, is_watched, lease_s, save_within_s, stall_limits
from inplace.cli.lint.init_containers import init_sentence
from inplace.cli.lint.pod import deadline_sentence
from inplace.cli.lint.stored import as_stored
from inplace.cli.terminal.moments import whole_duration_text
from inplace.common.injection.depth import holds_back, kubelets_own
from inplace.common.injection.pod_failure_policy import final_codes
from inplace.common.injection.pod_roles import Container, Member, group_of
from inplace.common.injection.restart_rules import spell
from inplace.common.jobset.crash_loop import backoff_of
from inplace.common.jobset.escalation import IN_PLACE, RECREATE_JOB, RECREATE_JOBS, REPLACE_POD, Escalation
from inplace.common.jobset.jobset import JobSet
from inplace.common.jobset.members import has_jobs_as_units, units_of
from inplace.common.jobset.notices import restart_on
from inplace.common.jobset.scopes import BY_GROUP, BY_REPLICATED_JOB
from inplace.common.jobset.settings import FAILURES, FENCE_AFTER, MODE, NODES, OBSERVE, RESTART_ON, STALL, Setting
from inplace.common.jobset.topology import finds_domain
from inplace.common.kube.resources import KubeObject
from inplace.common.protocol.errors import RemoteProtocolError
from inplace.common.protocol.lease import promised_s
from inplace.common.wire import names as wire
from inplace.common.wire import notice
from inplace.common.wire.in_place import restarts_in_place

DONE: Final[Mapping[str, str]] = {
    IN_PLACE: "all workers restart in their Pods",
    REPLACE_POD: "the Pod that failed first is replaced, and the others restart in place",
    RECREATE_JOB: "the Job of the Pod that failed first is deleted and created again, and the others restart in place",
    RECREATE_JOBS: "all Jobs are deleted and created again",
}
NOTICES: Final[Mapping[str, str]] = {
    notice.LOSS: "a loss that is no finite number",
    notice.SLOW: "a rank whose own work on a step gets slower",
    notice.STEPS: "steps that get slower",
    notice.STALL: "a rank that makes no step for far longer than before",
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


GIVEN_UP_S: Final = 300  # Kubernetes' default toleration of a node that nobody can reach


def pod_sentences(jobset: JobSet, raw: KubeObject) -> Iterator[str]:
    """Yield what the Pods of the group add."""
    group = [(member, agent) for member in group_of(raw) if (agent := member.agent) is not None]

    def say(words: Callable[[Member, Container], str]) -> Iterator[str]:
        by_words: dict[str, list[str]] = {}
        for member, agent in group:
            by_words.setdefault(words(member, agent), []).append(member.name)
        for sentence, names in by_words.items():
            if sentence:
                yield sentence if len(by_words) == 1 else f"{', '.join(names)}: {sentence}"

    yield from say(lambda member, _agent: _final_codes(member))
    yield from say(lambda member, _agent: deadline_sentence(member))
    yield from say(lambda member, _agent: init_sentence(member))
    yield from say(lambda member, _agent: _held_back(member))
    yield from say(lambda member, agent: _hang(member, agent, jobset))
    if restart_on(jobset.annotations) and is_unwatched(raw):
        yield f"No agent sees its worker's steps, so {wire.RESTART_ON} has no effect."
    yield from say(_check)
    yield from say(_saving)
    yield from say(lambda member, agent: _dead_node(member, agent, jobset))
    yield from say(_token)


def absence(jobset: JobSet, setting: Setting, part: str = "") -> str:
    """Say why a setting has no effect."""
    said = setting.read_or_default(jobset.annotations)
    is_set = setting.key in jobset.annotations and (not part or not said or part in said)
    how = "is observed" if said.get(MODE.name) == OBSERVE else "has no effect" if is_set else "is not set"
    return f"{setting.named(part) if part else setting.key} {how}"


def _final_codes(member: Member) -> str:
    by_codes: dict[str, list[str]] = {}
    for worker in member.workers:
        if codes := final_codes(member.job_spec, worker.name):
            by_codes.setdefault(spell(codes), []).append(worker.name)
    ending = [f"{codes} of {', '.join(names)}" for codes, names in by_codes.items()]
    return f"Exit codes {' and '.join(ending)} end the Job instead of a restart (podFailurePolicy)." if ending else ""


def _held_back(member: Member) -> str:
    if not holds_back(member):
        return ""
    names = ", ".join(f"{' and '.join(found)} of {one.name}" for one in member.workers if (found := kubelets_own(one)))
    return f"Each restart starts the containers again, and kubelet probes a worker only after the barrier: {names}."


def _hang(member: Member, agent: Container, jobset: JobSet) -> str:
    limits = stall_limits(member, agent)
    if not limits.are_set:
        if not is_watched(member, agent):
            return "A worker that hangs is not noticed: its agent cannot see its steps."
        return (
            "A rank that makes no step for far longer than before is told of, and nothing restarts because of it "
            f"({absence(jobset, STALL)})."
        )
    times = []
    if limits.stall_after_s is not None:
        times.append(f"a step takes longer than {limits.stall_after_s:g} s")
    if limits.start_stall_after_s is not None:
        times.append(f"the first step comes later than {limits.start_stall_after_s:g} s after the start")
    return f"A worker hangs if {' or '.join(times)}; that is a failure."


def _check(member: Member, agent: Container) -> str:
    checks = [] if agent.is_upstream_supervisor else checks_of(member, agent)
    if not checks:
        return ""
    longest_s = max(options.check_timeout_s for _, options in checks)
    joins = all(options.joins_unanswered for _, options in checks)
    unanswered = "joins" if joins else "ends"
    return (
        "Before a Pod joins an epoch it runs a check; if that fails, the Pod is replaced. A Pod whose check is not "
        f"over after {longest_s:g} s, or cannot be run, {unanswered}."
    )


def _saving(member: Member, agent: Container) -> str:
    within_s = save_within_s(member, agent)
    if within_s <= 0:
        return ""
    stall_s = stall_limits(member, agent).stall_after_s
    slow = ""
    if stall_s is not None and stall_s < within_s:
        slow = f" A save that takes longer than {stall_s:g} s is a hang, unless the script says inplace.busy."
    return f"Before a planned stop workers have up to {within_s:g} s to save.{slow}"


def _token(member: Member, agent: Container) -> str:
    account = str(member.pod_spec.get("serviceAccountName") or "default")
    if agent.has_agent:
        return f"The worker shares its container with the agent and can read the token of ServiceAccount {account}."
    if member.pod_spec.get("automountServiceAccountToken") is not False:
        return f"Training code can read the token of ServiceAccount {account}, and announce with it for its own Pod."
    return (
        f"Only the agent has a token of ServiceAccount {account}. A script that talks to the API server needs "
        "automountServiceAccountToken: true in its Pod template."
    )


def _dead_node(member: Member, agent: Container, jobset: JobSet) -> str:
    length_s = lease_s(member, agent)
    is_replaced_early = jobset.fence_after_s is not None and not member.job_spec.get("podFailurePolicy")
    replaced = (
        "is replaced as soon as Kubernetes says that its node is gone"
        if is_replaced_early
        else f"is given up {GIVEN_UP_S} s after Kubernetes says that its node is gone (its default)"
    )
    if not length_s:
        return f"A Pod {replaced}, and the group waits until its object is gone ({absence(jobset, FENCE_AFTER)})."
    return (
        f"A Pod {replaced}, and the group waits for its worker's end for at most {promised_s(length_s)} s. "
        f"An API server that is away for longer than {length_s} s ends EVERY worker."
    )
