"""
Say in sentences what the Pods' own settings add to a JobSet's policy: hangs, checks, saving, dead nodes. Pure.

Where replicatedJobs differ, each sentence names those that it is about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from inplace.cli.lint.agent_policies import checks_of, lease_s, save_within_s
from inplace.cli.lint.init_containers import init_sentence
from inplace.cli.lint.pod import deadline_sentence
from inplace.cli.lint.stall import is_unwatched, is_watched, stall_limits
from inplace.common.injection.depth import holds_back, kubelets_own
from inplace.common.injection.pod_failure_policy import final_codes
from inplace.common.injection.pod_roles import Container, Member, group_of
from inplace.common.injection.restart_rules import spell
from inplace.common.jobset.jobset import JobSet
from inplace.common.jobset.notices import restart_on
from inplace.common.jobset.settings import FENCE_AFTER, MODE, OBSERVE, STALL, Setting
from inplace.common.kube.resources import KubeObject
from inplace.common.protocol.lease import promised_s
from inplace.common.wire import names as wire

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
